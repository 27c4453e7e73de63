package soft_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// works is the kinds of work of channels in the tests below.
var works = []struct {
	name  string
	words []uint32
}{
	{"nothing", []uint32{0, 0, 0}},
	{"release", release(1, 1)},
	{"copy", cat(incr(2, 0, classM2MF), copyM2MF(vaData, vaRAM, 1<<16))},
	{"wait", acquire(0, 1, opAcquire)},
	{"software method", cat(incr(7, 0, classSoftware), incr(7, 0x400, 0))},
	{"illegal method", cat(incr(2, 0, classM2MF), incr(2, 0xffc, 0))},
	{"illegal copy", cat(incr(4, 0, classCE0), incr(4, 0x3fc, 0))},
	{"bad header", []uint32{6 << 29}},
	{"yield", incr(0, 0x80, 0)},
	{"invalidate", incr(0, 0x28, 0, 9<<27)},
	{"half a packet", []uint32{header(1, 1, 0, 8)}},
}

// For any register writes of a driver, the scheduler's rules hold after each access. Once
// everything is allowed and acknowledged, every channel reaches the end of its ring.
// Slices of one step make channels change as often as they can.
func TestSchedulerRules(t *testing.T) {
	const n = 5
	r := newRig(t, soft.Config{Slice: 1})
	area := r.bar1()
	var cs []*testChannel
	for i := range uint32(n) {
		cs = append(cs, r.newChannel(i+1, area))
	}
	lists := r.alloc(0x20 * 0x1000)
	for set := range uint64(0x20) { // one list for each set of channels
		at := lists + set*0x1000
		for i := range uint64(n) {
			id := uint32(99)
			if set>>i&1 != 0 {
				id = uint32(i + 1)
			}
			r.vramWrite32(at+i*8, id)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			c := cs[rapid.IntRange(0, n-1).Draw(t, "channel")]
			switch rapid.SampledFrom([]string{
				"submit", "submit", "submit", "doorbell", "enable", "disable", "bind", "unbind", "runlist", "preempt",
				"block", "allow", "off", "on", "answer", "wake", "flush", "trigger",
			}).Draw(t, "operation") {
			case "submit":
				// A word in front is for half a packet before it. What that would take of a packet
				// makes data of headers, and headers of data: a copy to nowhere, for example, that
				// faults as often as its channel is bound.
				if w := works[rapid.IntRange(0, len(works)-1).Draw(t, "work")]; (c.put+1)&(1<<ringLog2-1) != c.userd32(gf100.USERDGPGet) {
					c.submit(append([]uint32{0}, w.words...)...)
				}
			case "doorbell":
				c.doorbell()
			case "enable":
				c.enable()
			case "disable":
				c.disable()
			case "bind":
				c.bind()
			case "unbind":
				c.unbind()
			case "runlist":
				set := rapid.Uint64Range(0, 0x1f).Draw(t, "set")
				r.wr(0x2270, uint32((lists+set*0x1000)>>12))
				r.wr(0x2274, n)
			case "preempt":
				r.wr(0x2634, c.id)
			case "block":
				r.wr(0x2630, 1)
			case "allow":
				r.wr(0x2630, 0)
			case "off":
				r.wr(0x2200, 0)
			case "on":
				r.wr(0x2200, 1)
			case "answer":
				r.answer()
			case "wake":
				r.vramWrite32(c.sem, 1)
			case "flush":
				r.wr(0x100cbc, 1)
			case "trigger":
				r.wr(0x2a30, 0x100)
			}
			require.NoError(t, r.card.Check())
		}
		// Now allow everything. A channel that faulted is bound again.
		r.wr(0x2200, 1)
		r.wr(0x2630, 0)
		for _, c := range cs {
			r.vramWrite32(c.sem, 1)
			c.disable()
			r.wr(0x2634, c.id)
		}
		r.wr(0x2270, uint32((lists+0x1f*0x1000)>>12))
		r.wr(0x2274, n)
		deadline := time.Now().Add(patience)
		for n := 0; !r.allDrained(cs); n++ {
			require.NoError(t, r.card.Check())
			require.True(t, time.Now().Before(deadline), "a channel was forgotten")
			r.answer()
			for _, c := range cs {
				if n%100 == 0 {
					c.bind()
				}
				c.enable()
			}
			time.Sleep(tick)
		}
		for _, c := range cs {
			r.vramWrite32(c.sem, 0)
		}
	})
}

// answer acknowledges every interrupt as a driver does.
func (r *rig) answer() {
	for i := range uint32(gf100.PBDMAs) {
		if intr := r.rd(0x40108 + i*0x2000); intr != 0 {
			r.wr(0x400c0+i*0x2000, 0x80600008)
			r.wr(0x40108+i*0x2000, intr)
		}
	}
	r.wr(0x400100, r.rd(0x400100))
	r.wr(0x400500, 0x00010001)
	for i := range uint32(gf100.CEs) {
		r.wr(0x104004+i*0x1000, 0x40)
	}
	r.wr(0x259c, r.rd(0x259c))
	r.wr(0x2a00, 1<<28)
}

func (r *rig) allDrained(cs []*testChannel) bool {
	for _, c := range cs {
		if c.userd32(gf100.USERDGPGet) != c.put {
			return false
		}
	}
	return true
}

// A runlist that no memory answers for is empty, and PFIFO says so. One of no entries
// is not read.
func TestRunlistThatIsNotThere(t *testing.T) {
	r := newRig(t, soft.Config{})
	behind := uint32(r.card.VRAMSize() >> 12)
	r.wr(0x2270, behind)
	r.wr(0x2274, 0x01f00000)
	require.Zero(t, r.rd(0x2100)&gf100.IntrSched)
	r.wr(0x2274, 0x01f00002)
	require.NotZero(t, r.rd(0x2100)&gf100.IntrSched)
	require.Equal(t, uint32(gf100.SchedRunlistData), r.rd(0x254c))
	r.wr(0x2100, gf100.IntrSched)
	require.Zero(t, r.rd(0x2100)&gf100.IntrSched)
	r.wr(0x2270, 3<<28|(ramSize>>12-1)) // the last page of system memory
	r.wr(0x2274, 0x01f00002)
	require.Zero(t, r.rd(0x2100)&gf100.IntrSched)
	r.wr(0x2270, 3<<28|ramSize>>12)
	r.wr(0x2274, 0x01f00002)
	require.NotZero(t, r.rd(0x2100)&gf100.IntrSched)
}

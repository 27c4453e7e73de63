package bench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

var traps = scenario{
	name: "traps", about: "one trapped access of each class, median; device-ns is the device's part of it, the rest is socket and threads",
	cases: func(quick bool) (out []testCase) {
		for _, target := range trapTargets {
			for _, kind := range target.kinds {
				out = append(out, alone(target.name+"-"+trapKinds[kind], 0, func(t *take, g *guest.Guest) {
					b := newTrapper(g)
					measureTrap(t, g, kind, target.region, target.at(b), target.value, pick(quick, 320, 3200))
				}))
			}
		}
		return out
	},
}

// trapKinds are kinds of accesses.
var trapKinds = map[rune]string{'r': "read", 'w': "write", 'p': "write-posted"}

// Registers that are accessed: the last scratch register of PBUS, which has no effect, the commit of
// a runlist, which is the guest's list of one channel again, and PRAMIN.
const (
	scratch = 0x0014fc
	runlist = 0x002274
	pramin  = 0x700000
)

// trapper has places of a guest's that it can access.
type trapper struct{ doorbell, bar1, bar3 uint64 }

func offset(off uint64) func(*trapper) uint64 { return func(*trapper) uint64 { return off } }

var trapTargets = []struct {
	name   string
	kinds  string // of trapKinds
	region int
	at     func(b *trapper) uint64
	value  uint32 // written
}{
	{"register", "rwp", vfiouser.RegionBAR0, offset(scratch), 0},
	{"runlist", "w", vfiouser.RegionBAR0, offset(runlist), 0x01f00001},
	{"doorbell", "wp", vfiouser.RegionBAR1, func(b *trapper) uint64 { return b.doorbell }, 0},
	{"bar1", "rwp", vfiouser.RegionBAR1, func(b *trapper) uint64 { return b.bar1 }, 0},
	{"bar3", "rwp", vfiouser.RegionBAR3, func(b *trapper) uint64 { return b.bar3 }, 0},
	{"pramin", "rwp", vfiouser.RegionBAR0, offset(pramin), 0},
	{"config", "rw", vfiouser.RegionConfig, offset(0x0c), 0}, // the cache line size is storage
}

func newTrapper(g *guest.Guest) *trapper {
	ch := get(g.NewChannel(1, get(g.NewSpace())))
	vram := get(g.AllocVRAM(64 << 10))
	bar3, _, err := get(g.AllocVRAM(64 << 10)).BAR3()
	must(err)
	b := &trapper{ch.DoorbellOffset(), get(vram.BAR1()), bar3}
	must(g.Raw().SetPRAMIN(uint32(vram.Addr>>16), vram.Addr&0xffff, make([]byte, 4)))
	settle(g)
	return b
}

// trapBatch is how many posted writes go out before a read that waits for them.
const trapBatch = 32

func measureTrap(t *take, g *guest.Guest, kind rune, region int, off uint64, value uint32, n int) {
	endpoint, raw := t.server.endpoints[0], g.Raw()
	// A guest reaches what it has mapped without a trap, and QEMU posts no writes if anything is
	// mapped.
	if g.Mapped(region, off) != nil || kind == 'p' && endpoint.mapped {
		must(errSkip)
	}
	runtime.LockOSThread() // as the thread of a virtual processor
	defer runtime.UnlockOSThread()
	p, word := le.AppendUint32(nil, value), make([]byte, 4)
	timed := func(access func() error) time.Duration {
		at := time.Now()
		must(access())
		return time.Since(at)
	}
	once := func() float64 { return float64(timed(func() error { return raw.Write(region, off, p) })) }
	rounds, want := n, n
	switch kind {
	case 'r':
		once = func() float64 { return float64(timed(func() error { return raw.Read(region, off, p) })) }
	case 'p': // a batch with a read behind it, less the time of a read alone
		rounds, want = n/trapBatch, n+2*n/trapBatch
		once = func() float64 {
			alone := timed(func() error { return raw.Read(vfiouser.RegionBAR0, scratch, word) })
			batch := raw.Client().Batch()
			for range trapBatch {
				batch.Post(region, off, p)
			}
			batch.Read(vfiouser.RegionBAR0, scratch, word)
			return max(float64(timed(batch.Do)-alone), 1) / trapBatch
		}
	}
	reads, writes, device := endpoint.handled()
	each := make([]float64, rounds)
	t.phase("accesses", func() {
		for i := range each {
			each[i] = once()
		}
	})
	r, w, spent := endpoint.handled()
	handled := r + w - reads - writes
	if handled != uint64(want) {
		must(fmt.Errorf("the device handled %d accesses of %d", handled, want))
	}
	t.perTimed(n, median(each))
	quantiles(t, "access", each)
	t.metric("device-ns", float64(spent-device)/float64(handled))
}

package bench

import (
	"cmp"
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
					off := cmp.Or(target.off, trapOffsets(g)[target.name])
					measureTrap(t, g, kind, target.region, off, target.value, pick(quick, 320, 3200))
				}))
			}
		}
		return out
	},
}

// trapKinds are kinds of accesses.
var trapKinds = map[rune]string{'r': "read", 'w': "write", 'p': "write-posted"}

// scratch is the last scratch register of PBUS, which has no effect.
const scratch = 0x0014fc

// trapTargets are what is accessed. Offsets of 0 depend on the guest: see trapOffsets.
var trapTargets = []struct {
	name   string
	kinds  string // of trapKinds
	region int
	off    uint64
	value  uint32 // written
}{
	{"register", "rwp", vfiouser.RegionBAR0, scratch, 0},
	{"runlist", "w", vfiouser.RegionBAR0, 0x002274, 0x01f00001}, // commits the list of one channel again
	{"doorbell", "wp", vfiouser.RegionBAR1, 0, 0},
	{"bar1", "rwp", vfiouser.RegionBAR1, 0, 0},
	{"bar3", "rwp", vfiouser.RegionBAR3, 0, 0},
	{"pramin", "rwp", vfiouser.RegionBAR0, 0x700000, 0},
	{"config", "rw", vfiouser.RegionConfig, 0x0c, 0}, // the cache line size is storage
}

// trapOffsets gives a guest a channel and memory, and returns where its windows show them.
func trapOffsets(g *guest.Guest) map[string]uint64 {
	ch := get(g.NewChannel(1, get(g.NewSpace())))
	vram := get(g.AllocVRAM(64 << 10))
	bar3, _, err := get(g.AllocVRAM(64 << 10)).BAR3()
	must(err)
	at := map[string]uint64{"doorbell": ch.DoorbellOffset(), "bar1": get(vram.BAR1()), "bar3": bar3}
	must(g.Raw().SetPRAMIN(uint32(vram.Addr>>16), vram.Addr&0xffff, make([]byte, 4)))
	settle(g)
	return at
}

// trapBatch is how many posted writes go out before a read that waits for them.
const trapBatch = 32

func measureTrap(t *take, g *guest.Guest, kind rune, region int, off uint64, value uint32, n int) {
	// A guest reaches what it has mapped without a trap, and QEMU posts no writes if anything is
	// mapped.
	if g.Mapped(region, off) != nil || kind == 'p' && t.setup.mapped() {
		return
	}
	raw := g.Raw()
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
	each := make([]float64, rounds)
	t.phase("", func() {
		for i := range each {
			each[i] = once()
		}
	})
	handled := t.counts[unitTraps]
	if handled != float64(want) {
		must(fmt.Errorf("the device handled %v accesses of %d", handled, want))
	}
	t.ops, t.each = n, median(each)
	t.quantiles("access", each)
	t.metric("device-ns", t.counts[unitTrapNS]/handled)
}

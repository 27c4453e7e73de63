package inside

import (
	"fmt"
	"runtime"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

var traps = scene.Scenario{
	Name: "traps", About: "one trapped access of each class, median; device-ns is the device's part of it, the rest is socket and threads",
	Cases: func(p scene.Params) (out []scene.Case) {
		n := pick(p, 320, 3200)
		for _, c := range trapClasses {
			out = append(out, alone(c.name, 0, func(t *scene.Take, g *guest.Guest) error {
				b, err := newTrapper(g)
				if err != nil {
					return err
				}
				return b.measure(t, &c, n)
			}))
		}
		return out
	},
}

// A trapClass is a kind of access.
type trapClass struct {
	name   string
	write  bool
	posted bool
	region int
	at     func(b *trapper) uint64
	value  uint32 // written
}

// Registers that are accessed: the last scratch register of PBUS, which has no effect, the commit of
// a runlist, which is the guest's list of one channel again, and PRAMIN.
const (
	scratch = 0x0014fc
	runlist = 0x002274
	pramin  = 0x700000
)

func offset(off uint64) func(*trapper) uint64 { return func(*trapper) uint64 { return off } }

var trapClasses = []trapClass{
	{"register-read", false, false, vfiouser.RegionBAR0, offset(scratch), 0},
	{"register-write", true, false, vfiouser.RegionBAR0, offset(scratch), 0},
	{"register-write-posted", true, true, vfiouser.RegionBAR0, offset(scratch), 0},
	{"runlist-commit", true, false, vfiouser.RegionBAR0, offset(runlist), 0x01f00001},
	{"doorbell", true, false, vfiouser.RegionBAR1, (*trapper).doorbell, 0},
	{"doorbell-posted", true, true, vfiouser.RegionBAR1, (*trapper).doorbell, 0},
	{"bar1-read", false, false, vfiouser.RegionBAR1, (*trapper).bar1, 0},
	{"bar1-write", true, false, vfiouser.RegionBAR1, (*trapper).bar1, 0},
	{"bar1-write-posted", true, true, vfiouser.RegionBAR1, (*trapper).bar1, 0},
	{"bar3-read", false, false, vfiouser.RegionBAR3, (*trapper).bar3, 0},
	{"bar3-write", true, false, vfiouser.RegionBAR3, (*trapper).bar3, 0},
	{"bar3-write-posted", true, true, vfiouser.RegionBAR3, (*trapper).bar3, 0},
	{"pramin-read", false, false, vfiouser.RegionBAR0, offset(pramin), 0},
	{"pramin-write", true, false, vfiouser.RegionBAR0, offset(pramin), 0},
	{"pramin-write-posted", true, true, vfiouser.RegionBAR0, offset(pramin), 0},
	{"config-read", false, false, vfiouser.RegionConfig, offset(0), 0},
	{"config-write", true, false, vfiouser.RegionConfig, offset(0x0c), 0}, // the cache line size is storage
}

// trapper is a guest that accesses its GPU.
type trapper struct {
	g    *guest.Guest
	ch   *guest.Channel
	at1  uint64
	inst *guest.Instance
}

func (b *trapper) doorbell() uint64 { return b.ch.DoorbellOffset() }
func (b *trapper) bar1() uint64     { return b.at1 }
func (b *trapper) bar3() uint64     { return b.inst.BAR3() }

func newTrapper(g *guest.Guest) (_ *trapper, err error) {
	b := &trapper{g: g}
	space, err := b.g.NewSpace()
	if err != nil {
		return nil, err
	}
	if b.ch, err = b.g.NewChannel(1, space); err != nil {
		return nil, err
	}
	vram, err := b.g.AllocVRAM(64 << 10)
	if err != nil {
		return nil, err
	}
	if b.at1, err = vram.BAR1(); err != nil {
		return nil, err
	}
	if b.inst, err = b.g.NewInstance(64 << 10); err != nil {
		return nil, err
	}
	if err := b.g.Raw().SetPRAMIN(uint32(vram.Addr>>16), vram.Addr&0xffff, make([]byte, 4)); err != nil {
		return nil, err
	}
	return b, settle(b.g)
}

// trapBatch is how many posted writes go out before a read that waits for them.
const trapBatch = 32

func (b *trapper) measure(t *scene.Take, c *trapClass, n int) error {
	endpoint := t.Server.Endpoints[0]
	// A guest reaches what it has mapped without a trap, and QEMU posts no writes if anything is
	// mapped.
	if b.g.Mapped(c.region, c.at(b)) != nil || c.posted && endpoint.Mapped {
		return scene.ErrSkip
	}
	runtime.LockOSThread() // as the thread of a virtual processor
	defer runtime.UnlockOSThread()
	reads, writes, device := endpoint.Handled()
	var each []float64
	err := t.Phase("accesses", func() (err error) {
		if c.posted {
			each, err = b.posted(c, n)
		} else {
			each, err = b.waited(c, n)
		}
		return err
	})
	if err != nil {
		return err
	}
	r, w, spent := endpoint.Handled()
	want := uint64(n)
	if c.posted {
		want += 2 * uint64(n) / trapBatch // two reads for each batch
	}
	handled := r + w - reads - writes
	if handled != want {
		return fmt.Errorf("the device handled %d accesses of %d", handled, want)
	}
	t.Per(n)
	quantiles(t, "access", each)
	t.Time(each[len(each)/2])
	t.Metric("device-ns", float64(spent-device)/float64(handled))
	return nil
}

// waited makes accesses one at a time, each with its reply.
func (b *trapper) waited(c *trapClass, n int) ([]float64, error) {
	raw, off := b.g.Raw(), c.at(b)
	access := raw.Read
	if c.write {
		access = raw.Write
	}
	p := le.AppendUint32(nil, c.value)
	each := make([]float64, 0, n)
	for range n {
		at := time.Now()
		if err := access(c.region, off, p); err != nil {
			return nil, err
		}
		each = append(each, float64(time.Since(at)))
	}
	return each, nil
}

// posted makes batches of writes without replies, each batch with a read behind it, and subtracts
// the time of a read alone.
func (b *trapper) posted(c *trapClass, n int) ([]float64, error) {
	raw, off := b.g.Raw(), c.at(b)
	p, word := make([]byte, 4), make([]byte, 4)
	each := make([]float64, 0, n/trapBatch)
	for range n / trapBatch {
		at := time.Now()
		if err := raw.Read(vfiouser.RegionBAR0, scratch, word); err != nil {
			return nil, err
		}
		alone := time.Since(at)
		batch := raw.Client().Batch()
		for range trapBatch {
			batch.Post(c.region, off, p)
		}
		batch.Read(vfiouser.RegionBAR0, scratch, word)
		at = time.Now()
		if err := batch.Do(); err != nil {
			return nil, err
		}
		each = append(each, max(float64(time.Since(at)-alone), 1)/trapBatch)
	}
	return each, nil
}

package inside

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// A trapClass is a kind of access.
type trapClass struct {
	name   string
	write  bool
	posted bool
	base   string // the class without effect that tells what dispatch costs; "" for itself
	region int
	at     func(b *trapBench) uint64
}

// Registers that are accessed: the first one of the chip, and the last of PBUS's
// scratch registers, which has no effect.
const (
	boot0   = 0x000000
	scratch = 0x0014fc
	pramin  = 0x700000
)

const (
	classRead  = "register read"
	classWrite = "register write"
)

func offset(off uint64) func(*trapBench) uint64 { return func(*trapBench) uint64 { return off } }

// trapClasses are the classes, those without effect first.
var trapClasses = []trapClass{
	{classRead, false, false, "", vfiouser.RegionBAR0, offset(scratch)},
	{classWrite, true, false, "", vfiouser.RegionBAR0, offset(scratch)},
	{"posted register write", true, true, classWrite, vfiouser.RegionBAR0, offset(scratch)},
	{"doorbell", true, false, classWrite, vfiouser.RegionBAR1, (*trapBench).doorbell},
	{"posted doorbell", true, true, classWrite, vfiouser.RegionBAR1, (*trapBench).doorbell},
	{"BAR1 read", false, false, classRead, vfiouser.RegionBAR1, (*trapBench).bar1},
	{"BAR1 write", true, false, classWrite, vfiouser.RegionBAR1, (*trapBench).bar1},
	{"posted BAR1 write", true, true, classWrite, vfiouser.RegionBAR1, (*trapBench).bar1},
	{"BAR3 read", false, false, classRead, vfiouser.RegionBAR3, (*trapBench).bar3},
	{"BAR3 write", true, false, classWrite, vfiouser.RegionBAR3, (*trapBench).bar3},
	{"posted BAR3 write", true, true, classWrite, vfiouser.RegionBAR3, (*trapBench).bar3},
	{"PRAMIN read", false, false, classRead, vfiouser.RegionBAR0, offset(pramin)},
	{"PRAMIN write", true, false, classWrite, vfiouser.RegionBAR0, offset(pramin)},
	{"posted PRAMIN write", true, true, classWrite, vfiouser.RegionBAR0, offset(pramin)},
	{"config read", false, false, classRead, vfiouser.RegionConfig, offset(0)},
	{"config write", true, false, classWrite, vfiouser.RegionConfig, offset(0x0c)}, // the cache line size, which is storage
}

// trapBatch is how many posted writes go out before a read says that they have
// been handled.
const trapBatch = 32

// trapBench is a guest that accesses its GPU.
type trapBench struct {
	bed  *setup.Bed
	g    *guest.Guest
	ch   *guest.Channel
	vram *guest.Buffer
	inst *guest.Instance
	at1  uint64
	// by class: of each turn
	p50, p99, socket, handler [][]float64
}

func (b *trapBench) doorbell() uint64 { return b.ch.DoorbellOffset() }
func (b *trapBench) bar1() uint64     { return b.at1 }
func (b *trapBench) bar3() uint64     { return b.inst.BAR3() }

func newTrapBench(ctx context.Context, row setup.Row) (_ *trapBench, err error) {
	b := new(trapBench)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.bed, err = setup.Open(row, setup.Common); err != nil {
		return nil, err
	}
	if b.g, err = b.bed.Seats[0].Attach(ctx, guest.Config{Timeout: patience}); err != nil {
		return nil, err
	}
	space, err := b.g.NewSpace()
	if err != nil {
		return nil, err
	}
	if b.ch, err = b.g.NewChannel(1, space); err != nil {
		return nil, err
	}
	if b.vram, err = b.g.AllocVRAM(64 << 10); err != nil {
		return nil, err
	}
	if b.at1, err = b.vram.BAR1(); err != nil {
		return nil, err
	}
	if b.inst, err = b.g.NewInstance(64 << 10); err != nil {
		return nil, err
	}
	if err := b.g.Raw().SetPRAMIN(uint32(b.vram.Addr>>16), b.vram.Addr&0xffff, make([]byte, 4)); err != nil {
		return nil, err
	}
	for _, v := range []*[][]float64{&b.p50, &b.p99, &b.socket, &b.handler} {
		*v = make([][]float64, len(trapClasses))
	}
	return b, settle(b.g)
}

func (b *trapBench) close() error {
	var errs []error
	if b.g != nil {
		errs = append(errs, b.g.Close())
	}
	if b.bed != nil {
		errs = append(errs, b.bed.Close())
	}
	return errors.Join(errs...)
}

// trapped tells whether a guest of this set-up makes such an access at all: what it
// has mapped it reaches directly, and then QEMU posts no write of any BAR.
func (b *trapBench) trapped(c *trapClass) bool {
	return b.g.Mapped(c.region, c.at(b)) == nil && (!c.posted || !b.bed.Seats[0].Mapped)
}

// turn measures n accesses of class i.
func (b *trapBench) turn(i, n int) error {
	c := &trapClasses[i]
	off := c.at(b)
	if !b.trapped(c) {
		return nil
	}
	gauge := b.bed.Seats[0].Gauge
	traps, took := gauge.Handled()
	var each []float64
	var err error
	if c.posted {
		each, err = b.posted(c.region, off, n)
	} else {
		each, err = b.waited(c, off, n)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	handled, took2 := gauge.Handled()
	want := uint64(n)
	if c.posted {
		want += 2 * uint64(n) / trapBatch // the reads behind each batch, and their own measure
	}
	if handled-traps != want {
		return fmt.Errorf("%s: the device handled %d accesses of %d: they are not all trapped", c.name, handled-traps, want)
	}
	mean := 0.0
	for _, v := range each {
		mean += v / float64(len(each))
	}
	handler := float64(took2-took) / float64(handled-traps)
	slices.Sort(each)
	b.p50[i] = append(b.p50[i], stats.Quantile(each, 0.50))
	b.p99[i] = append(b.p99[i], stats.Quantile(each, 0.99))
	b.handler[i] = append(b.handler[i], min(handler, mean))
	b.socket[i] = append(b.socket[i], max(mean-handler, 0))
	return nil
}

// waited makes accesses one at a time, each with its reply. What is written is
// what was there.
func (b *trapBench) waited(c *trapClass, off uint64, n int) ([]float64, error) {
	raw := b.g.Raw()
	p := make([]byte, 4)
	each := make([]float64, 0, n)
	for range n {
		var err error
		at := time.Now()
		if c.write {
			err = raw.Write(c.region, off, p)
		} else {
			err = raw.Read(c.region, off, p)
		}
		if err != nil {
			return nil, err
		}
		each = append(each, float64(time.Since(at)))
	}
	return each, nil
}

// posted makes batches of writes that have no reply, with a read behind each, and
// takes off what a read alone took.
func (b *trapBench) posted(region int, off uint64, n int) ([]float64, error) {
	raw := b.g.Raw()
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
			batch.Post(region, off, p)
		}
		batch.Read(vfiouser.RegionBAR0, scratch, word)
		at = time.Now()
		if err := batch.Do(); err != nil {
			return nil, err
		}
		each = append(each, max(float64(time.Since(at)-alone), 0)/trapBatch)
	}
	return each, nil
}

// Traps measures what one access of each class costs with each set-up, by turns.
func Traps(ctx context.Context, run report.Run, rows []setup.Row) (out []report.Trap, err error) {
	runtime.LockOSThread() // as a virtual processor's thread would
	defer runtime.UnlockOSThread()
	var benches []*trapBench
	defer func() {
		for _, b := range benches {
			err = errors.Join(err, b.close())
		}
	}()
	for _, row := range rows {
		b, err := newTrapBench(ctx, row)
		if err != nil {
			return nil, err
		}
		benches = append(benches, b)
	}
	n := pick(run, 320, 3200)
	for turn := range run.Repeat {
		for i := range trapClasses {
			for k := range benches {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				b := benches[(k+turn)%len(benches)]
				if err := b.turn(i, n); err != nil {
					return nil, fmt.Errorf("%s: %w", b.bed.Row.Name, err)
				}
			}
		}
	}
	for _, b := range benches {
		for i := range trapClasses {
			if b.trapped(&trapClasses[i]) {
				out = append(out, b.report(i, n*run.Repeat))
			}
		}
	}
	return out, nil
}

func (b *trapBench) report(i, n int) report.Trap {
	c := &trapClasses[i]
	base := i
	for k := range trapClasses {
		if trapClasses[k].name == c.base {
			base = k
		}
	}
	var dispatch, effect []float64
	for turn, h := range b.handler[i] {
		d := min(b.handler[base][turn], h)
		dispatch, effect = append(dispatch, d), append(effect, h-d)
	}
	return report.Trap{
		Setup: b.bed.Row.Name, Class: c.name, Posted: c.posted, N: n,
		P50: stats.Of(b.p50[i]), P99: stats.Of(b.p99[i]),
		Socket: stats.Of(b.socket[i]), Dispatch: stats.Of(dispatch), Effect: stats.Of(effect),
	}
}

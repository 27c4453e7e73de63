// Package driver makes a [card.GPU] of a card with registers. It does what a driver of the
// card does: it brings the card up, and owns the instance blocks, the runlists, the page
// tables and USERD. Channels of another class than the registers' are described to the card, if it
// is a [card.Describer]; both kinds share numbers and memory.
//
// # Goroutines
//
// [Driver.listen], from New to Close, reads what the card's interrupts report. If the card has no
// meter, meter.run looks at its channels, as long.
//
// # Locks, in the order they are taken
//
//  1. Driver.events: one look at the card's interrupts at a time. Channels' events are
//     delivered with it held.
//  2. Driver.table: the table of channels and shares, free memory. Held for a moment.
//  3. bound.mu: one register write, or one look at a channel.
//  4. coalescer.mu and Driver.writes: for a moment, never while waiting for the card. meter.mu:
//     for a few register reads for each channel that has work. pendingEvents.mu: for a moment.
//
// A Share with its Spaces belongs to one goroutine at a time. The methods of a Channel may be called from
// any, except Stop, Unbind and Free.
package driver

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Options bound what the driver asks of the card. Zero values are the defaults.
type Options struct {
	// Timeout is for one operation of the card, plus 20 ms for scheduling delay; default
	// 500 ms.
	Timeout time.Duration

	// Tests set these. One invalidate names at most so many directories, default 32; for more it
	// names all of the card's.
	invalidateDirs int
	// Interrupts are read at most interruptBurst times in a row, default 64, with an
	// interruptPause between, default 1 ms.
	interruptBurst int
	interruptPause time.Duration
}

// Driver drives a card.
type Driver struct {
	card.Registers
	opts Options

	pollArea uint64     // the card's USERD pages, in VRAM
	fixed    []card.Run // in VRAM: written by bringUp and never changed
	runlists [2]uint64  // in VRAM; the card may be reading one of them
	active   int        // index in runlists; guarded by writes

	// Operations that take time on the card.
	invalidating, committing, preempting coalescer

	writes sync.Mutex // serializes sequences of register writes

	table    sync.Mutex
	memory   vram.Allocator
	shares   []*share
	channels [gf100.Channels]member // by number

	userds sync.Pool // of *userd
	meter  *meter    // nil if the card has its own

	described pendingEvents

	events    sync.Mutex
	taken     []card.ChannelEvent // by the present look; guarded by events
	interrupt chan struct{}       // capacity 1: the card has something to report
	closing   chan struct{}
	listening sync.WaitGroup
}

var _ card.GPU = (*Driver)(nil)

// New brings a card into service that is fresh from a reset.
func New(c card.Registers, o Options) (*Driver, error) {
	o.Timeout = cmp.Or(o.Timeout, time.Second/2)
	o.invalidateDirs = cmp.Or(o.invalidateDirs, 32)
	o.interruptBurst = cmp.Or(o.interruptBurst, 64)
	o.interruptPause = cmp.Or(o.interruptPause, time.Millisecond)
	d := &Driver{Registers: c, opts: o, interrupt: make(chan struct{}, 1), closing: make(chan struct{})}
	d.userds.New = func() any { return new(userd) }
	d.memory.Release(card.Run{Size: c.VRAMSize()})
	for _, op := range []*coalescer{&d.invalidating, &d.committing, &d.preempting} {
		op.init()
	}
	if err := d.bringUp(); err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	if _, ok := c.(card.Meter); !ok {
		d.meter = newMeter(d)
		d.listening.Add(1)
		go d.meter.run()
	}
	c.AttachHost(host{d})
	d.listening.Add(1)
	go d.listen()
	return d, nil
}

// Close takes the card out of service. All shares must have been closed.
func (d *Driver) Close() {
	d.DetachHost()
	close(d.closing)
	d.listening.Wait()
}

// Register values.
const (
	channelStart  = 0x001f0001
	instanceBound = gf100.InstanceBound | 1<<30
	graphGoOn     = 0x00010001
	contextInst   = 1<<28 - 1 // in NV_PGRAPH_PRI_FECS_CURRENT_CTX and a copy engine's CURCTX
	pbdmaIntrs    = 0xfffffeff
	copyRefused   = 1 << 6 // in a copy engine's IRQSTAT

	// In NV_PMC_INTR_0.
	intrPFIFO    = 1 << 8
	intrPGRAPH   = 1 << 12
	intrCE0      = 1 << 5
	intrCE1      = 1 << 6
	intrOurs     = intrPFIFO | intrPGRAPH | intrCE0 | intrCE1
	pollAreaBAR1 = 0 // where the poll area lies in BAR1
)

// bringUp enables interrupts and PFIFO, and makes BAR1 show the poll area only.
func (d *Driver) bringUp() error {
	var dir, table, inst uint64
	for _, a := range []struct {
		addr *uint64
		size uint64
	}{
		{&d.pollArea, gf100.PollSize}, {&dir, shadowpt.DirSize}, {&table, shadowpt.SmallTableSize}, {&inst, gf100.InstanceSize},
		{&d.runlists[0], vram.PageSize}, {&d.runlists[1], vram.PageSize},
	} {
		r, ok := d.memory.Take(a.size, vram.PageSize)
		if !ok {
			return fmt.Errorf("the card has no %d KiB of memory left", a.size>>10)
		}
		if err := d.ScrubVRAM(r.Addr, r.Size); err != nil {
			return err
		}
		*a.addr = r.Addr
	}
	entries := make([]byte, gf100.PollSize/vram.PageSize*8)
	for i := range uint64(gf100.PollSize / vram.PageSize) {
		binary.LittleEndian.PutUint64(entries[i*8:], shadowpt.PTE{Valid: true, Addr: d.pollArea + i*vram.PageSize}.Encode())
	}
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}
	block := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(block, uint32(dir>>12))
	gf100.InstPDBHi.Put(block, uint32(dir>>32))
	gf100.InstLimitLo.Put(block, gf100.PollSize>>12-1)
	for _, w := range []struct {
		addr uint64
		data []byte
	}{
		{table, entries}, {dir, binary.LittleEndian.AppendUint64(nil, pde.Encode())}, {inst, block},
	} {
		if !d.WriteVRAM(w.addr, w.data) {
			return fmt.Errorf("the card has no memory at %#x", w.addr)
		}
	}
	d.fixed = []card.Run{{Addr: dir, Size: shadowpt.DirSize}, {Addr: table, Size: shadowpt.SmallTableSize}, {Addr: inst, Size: gf100.InstanceSize}}
	for _, w := range []struct{ reg, val uint32 }{
		{regPMCIntrEn, 0},
		{regPMCEnable, ^uint32(0)},
		{regBAR1Block, gf100.BlockVirtual | uint32(inst>>12)},
		{regFIFOIntr, ^uint32(0)}, {regFIFOIntrEn, ^uint32(0)}, {regEngEventEn, 1},
		{regPBDMAIntrEn, pbdmaIntrs}, {regPBDMAIntrEn + stridePBDMA, pbdmaIntrs}, {regPBDMAIntrEn + 2*stridePBDMA, pbdmaIntrs},
		{regUSERDBase, 1<<28 | pollAreaBAR1>>12},
		{regFIFOEnable, gf100.FIFOEnabled},
		{regGraphIntr, ^uint32(0)}, {regGraphIntrEn, ^uint32(0)}, {regGraphFIFO, graphGoOn},
		{regCopyMask, copyRefused}, {regCopyDest, copyRefused},
		{regCopyMask + strideCopy, copyRefused}, {regCopyDest + strideCopy, copyRefused},
		{regPMCIntrMask0, intrOurs},
		{regPMCIntrEn, 1},
	} {
		d.wr(w.reg, w.val)
	}
	return nil
}

func (d *Driver) rd(reg uint32) uint32 { return d.Read32(card.BAR0, uint64(reg)) }
func (d *Driver) wr(reg, v uint32)     { d.Write32(card.BAR0, uint64(reg), v) }

// Time implements card.GPU.
func (d *Driver) Time() uint64 {
	for {
		hi := d.rd(regTimeHi)
		lo := d.rd(regTimeLo)
		if d.rd(regTimeHi) == hi {
			return uint64(hi)<<32 | uint64(lo)
		}
	}
}

// Meter implements card.GPU.
func (d *Driver) Meter() card.Meter {
	if d.meter != nil {
		return d.meter
	}
	return d.Registers.(card.Meter)
}

// Relocator implements card.GPU.
func (d *Driver) Relocator() card.Relocator {
	r, _ := d.Registers.(card.Relocator)
	return r
}

// Slices implements card.GPU. The registers tell of no time slices.
func (d *Driver) Slices() card.Slices { return nil }

// Culling implements card.GPU: its drivers read registers.
func (d *Driver) Culling() card.Culling { return card.Culling{} }

// alloc returns scrubbed runs.
func (d *Driver) alloc(size, align uint64) ([]card.Run, error) {
	d.table.Lock()
	runs, err := d.memory.Alloc(vram.WholePages(size), align)
	d.table.Unlock()
	for _, r := range runs {
		if err == nil {
			err = d.ScrubVRAM(r.Addr, r.Size)
		}
	}
	if err != nil {
		d.table.Lock()
		defer d.table.Unlock()
		d.memory.Release(runs...)
		return nil, err
	}
	return runs, nil
}

// FreeBytes implements card.GPU.
func (d *Driver) FreeBytes() uint64 {
	d.table.Lock()
	defer d.table.Unlock()
	return d.memory.Left()
}

// Fixed returns the card memory that never changes between New and Close: the tables and the
// instance block of the driver's BAR1.
func (d *Driver) Fixed() []card.Run { return d.fixed }

// PollArea returns the card memory of the poll area: a page for each channel of the card, of
// which only the words of USERD are ever written.
func (d *Driver) PollArea() card.Run { return card.Run{Addr: d.pollArea, Size: gf100.PollSize} }

// Runlists returns the memory of the card's runlists.
func (d *Driver) Runlists() []card.Run {
	return []card.Run{{Addr: d.runlists[0], Size: vram.PageSize}, {Addr: d.runlists[1], Size: vram.PageSize}}
}

// host is what the card is plugged into.
type host struct{ driver *Driver }

// Interrupt implements card.Host. It is called under the card's lock, so it only wakes the
// goroutine that asks the card.
func (h host) Interrupt(l card.Line) {
	if l.Level {
		h.driver.wake()
	}
}

// wake wakes the goroutine that asks the card.
func (d *Driver) wake() {
	select {
	case d.interrupt <- struct{}{}:
	default:
	}
}

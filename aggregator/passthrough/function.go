// Package passthrough gives a whole card to one guest, whose machine may map windows into the
// card's VRAM.
//
// A [Function] is the PCI function that the guest reaches. It passes all accesses on to the card
// and finds those that concern the windows (package aperture): writes that change what a window
// shows, and accesses that order memory. The card knows nothing of windows.
//
// # Locks, in the order in which they are taken
//
//  1. Function.mu: one access of the guest at a time. It is held while pages move, so that no
//     trapped access is under way then.
//  2. The locks of the card, which it may hold when it calls Interrupt.
//  3. The lock of the aperture.Mapper, which calls the card with it held; see [Card].
//
// There are no goroutines.
package passthrough

import (
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Card is the card behind a Function. It calls Interrupt of its host with locks held that
// ReadMemory, ReadVRAM, SameVRAM, Relocate and QuiesceChannels do not wait for.
type Card interface {
	card.Registers
	card.Relocator
	ReadBAR(bar int, off uint64, p []byte)
	WriteBAR(bar int, off uint64, p []byte)
	BARSize(bar int) uint64
	ReadConfig(off uint32, p []byte)
	WriteConfig(off uint32, p []byte)
	ConfigSize() uint64
	Registers() *mmio.Space
	ROM() []byte
	// ReadMemory reads what an entry of a page table names. It returns false if not all of
	// the bytes exist.
	ReadMemory(t shadowpt.Target, addr uint64, p []byte) bool
}

// Config says what a client may map, and how much that may cost.
type Config struct {
	Map    aperture.Map
	Limits aperture.Limits
}

// Function is a card as its guest's PCI function.
type Function struct {
	Card
	cfg            Config
	stats          aperture.Stats
	rows           *mmio.Space // Barrier reads declarations, which never change
	shown          []register
	flush, control mmio.Cell // show whether host writes and an invalidate are complete

	maps *aperture.Mapper

	mu   sync.Mutex
	poll uint64 // where the doorbells are in BAR1; valid while there are windows
}

// A register decides what windows show. Only accesses through the Function change it.
type register struct {
	mmio.Cell
	show func(v uint32)
}

// New makes the function of a card.
func New(c Card, cfg Config) *Function {
	r := c.Registers()
	f := &Function{
		Card: c, cfg: cfg, rows: r, flush: r.Cell("NV_UFLUSH_FB_FLUSH", 0), control: r.Cell("NV_PFB_PRI_MMU_CTRL", 0),
	}
	f.maps = aperture.New(owner{c}, &f.stats)
	pdb := r.Cell("NV_PFB_PRI_MMU_INVALIDATE_PDB", 0)
	f.shown = []register{
		{r.Cell("NV_PFB_PRI_MMU_INVALIDATE", 0), func(v uint32) {
			target, dir := gf100.InvalidatedDirectory(pdb.Get())
			f.maps.Invalidate(shadowpt.Target(target), dir, v&gf100.InvalidateAllDirs != 0)
		}},
		{r.Cell("NV_PFIFO_USERD_BASE", 0), func(v uint32) {
			f.poll = gf100.PollArea(v)
			f.maps.PollArea(f.poll, gf100.PollSize)
		}},
		{r.Cell("NV_PBUS_BAR1_BLOCK", 0), func(v uint32) { f.showBAR(aperture.BAR1, v) }},
		{r.Cell("NV_PBUS_BAR2_BLOCK", 0), func(v uint32) { f.showBAR(aperture.BAR3, v) }},
		{r.Cell("NV_PBUS_BAR0_WINDOW", 0), func(v uint32) {
			target, addr := gf100.PRAMINMemory(v)
			f.maps.Window(shadowpt.Target(target), addr)
		}},
	}
	return f
}

func (f *Function) showBAR(k aperture.Kind, v uint32) {
	var block [gf100.InstanceSize]byte
	if addr, virtual := gf100.BlockMemory(v); virtual && f.ReadVRAM(addr, block[:]) {
		f.maps.Block(k, true, structs.ReadSpace(block[:]))
	} else {
		f.maps.Block(k, false, shadowpt.Space{})
	}
}

// show shows the present state of the card in all windows.
func (f *Function) show() {
	if f.maps.Map() == aperture.MapNone {
		return
	}
	for _, r := range f.shown {
		r.show(r.Get())
	}
}

// Stats counts the work for windows, of all clients together.
func (f *Function) Stats() *aperture.Stats { return &f.stats }

// ReadBAR serves a guest's read.
func (f *Function) ReadBAR(bar int, off uint64, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.maps.Map() == aperture.MapNone || bar != card.BAR0 || gf100.InPRAMIN(off, len(p)) {
		f.Card.ReadBAR(bar, off, p)
		return
	}
	f.before(off, len(p), mmio.BarrierRead)
	f.Card.ReadBAR(bar, off, p)
	if f.maps.Pending() {
		f.incomplete(off, p)
	}
}

// WriteBAR serves a guest's write.
func (f *Function) WriteBAR(bar int, off uint64, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch end := off + uint64(len(p)); {
	case f.maps.Map() == aperture.MapNone:
	case bar == card.BAR1 && end > f.poll && off < f.poll+gf100.PollSize:
		f.maps.MemoryBarrier() // the card must find what was stored before GP_PUT
	case bar == card.BAR0 && !gf100.InPRAMIN(off, len(p)):
		f.before(off, len(p), mmio.BarrierWrite)
		f.Card.WriteBAR(bar, off, p)
		for _, r := range f.shown {
			if at := uint64(r.Offset()); off < at+4 && at < end {
				r.show(r.Get())
			}
		}
		return
	}
	f.Card.WriteBAR(bar, off, p)
}

// before is called before an access of registers.
func (f *Function) before(off uint64, n int, b mmio.Barrier) {
	f.maps.Access()
	if f.rows.Barrier(off, n, b) {
		f.maps.MemoryBarrier()
	}
}

// incomplete changes what the guest read: an invalidate or a flush is not complete while pages
// are still to be moved.
func (f *Function) incomplete(off uint64, p []byte) {
	for i := range p {
		switch off + uint64(i) {
		case uint64(f.flush.Offset()):
			p[i] |= gf100.FlushBusy
		case uint64(f.control.Offset()) + 1:
			p[i] &^= gf100.InvalidateDone >> 8
		}
	}
}

// Reset is a function-level reset. Pages return to the card before it clears its memory.
func (f *Function) Reset() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.maps.Reset()
	err := f.Card.Reset()
	f.show()
	return err
}

// OpenWindows makes the windows that a client may map.
func (f *Function) OpenWindows() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cfg.Map == aperture.MapNone {
		return nil
	}
	if err := f.maps.Free(); err != nil {
		return err
	}
	limits := f.cfg.Limits
	limits.FitMappings(f.MaxMappings())
	err := f.maps.Open(aperture.Config{
		Map: f.cfg.Map, Format: shadowpt.Fermi, Limits: limits, VRAM: f.VRAMSize(), ROM: f.ROM(), Poll: gf100.PollSize,
		BAR0: f.BARSize(card.BAR0), BAR1: f.BARSize(card.BAR1), BAR3: f.BARSize(card.BAR3),
	})
	f.show()
	return err
}

// CloseWindows closes them, see [aperture.Mapper.Close].
func (f *Function) CloseWindows() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.maps.Close()
	return err
}

// Windows lists what the client may map.
func (f *Function) Windows() []aperture.Region { return f.maps.Regions() }

// AttachHost attaches the card to a host.
func (f *Function) AttachHost(h card.Host) { f.Card.AttachHost(host{h, f}) }

// host is the card's host.
type host struct {
	card.Host
	f *Function
}

// Interrupt implements card.Host. The handler must find the results in memory.
func (h host) Interrupt(l card.Line) {
	if l.Level {
		h.f.maps.MemoryBarrier()
	}
	h.Host.Interrupt(l)
}

// owner is the card as the windows use it. The lock of the windows is held.
type owner struct{ Card }

// ReadTable implements shadowpt.Tables.
func (o owner) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool {
	return o.ReadMemory(t, addr, p)
}

// SameTable implements shadowpt.Tables. Tables in system memory are read and compared.
func (o owner) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	return t == shadowpt.VRAM && o.SameVRAM(addr, p)
}

// Quiesce implements aperture.Owner. Function.mu keeps trapped accesses out.
func (o owner) Quiesce(do func()) {
	var all [gf100.Channels]uint32
	for i := range all {
		all[i] = uint32(i)
	}
	o.QuiesceChannels(all[:], do)
}

// Direct implements aperture.Owner. The card reads its tables on demand.
func (o owner) Direct(uint64, bool) {}

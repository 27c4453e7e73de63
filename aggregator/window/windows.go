// Package window gives one guest its views of its own memory: BAR1 and BAR3 through page tables,
// PRAMIN through a base register. An access that traps walks the guest's tables as the guest wrote
// them. What the guest's machine maps instead, package aperture shows.
//
// All addresses go through the guest's extents and its DMA map, so nothing of the card's is in
// reach.
//
// The package has no goroutines. Callers do not use a [BARs] at the same time, except where a method
// says otherwise: traps hold the virtual GPU's lock. Quota.mu is a leaf.
package window

import (
	"slices"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Config says what a client may map, and of what.
type Config struct {
	Map      aperture.Map
	Format   *shadowpt.Format // of the guest's tables
	Limits   aperture.Limits
	GPU      card.GPU
	Mem      *memory.Memory
	Channels Channels
	Shadows  Shadows
	Quota    *Quota // nil if the card's pages have one place
}

// Channels are the guest's.
type Channels interface {
	// CardChannels lists the card's channels that may use the guest's memory.
	CardChannels() []card.Channel
}

// Shadows are the guest's.
type Shadows interface {
	// Untrapped notes that the guest can, or can no longer, write n bytes of VRAM without a trap.
	Untrapped(addr, n uint64, on bool)
}

// Stats counts a guest's accesses through windows.
type Stats struct {
	WindowFaults atomic.Uint64 `count:"window_faults" help:"Trapped accesses to a BAR at an address for which the guest's own tables have no page."`
	BadWindow    atomic.Uint64 `rule:"bad_window" help:"Accesses through PRAMIN outside the guest's memory, or settings that point a mapped PRAMIN there."`

	Mapped aperture.Stats // of what its clients may map
}

// BARs are a guest's views of its memory: BAR1, BAR3, and PRAMIN in BAR0.
type BARs struct {
	cfg   Config
	mem   *memory.Memory
	stats *Stats
	bar1  bar
	bar3  bar
	maps  *aperture.Mapper
}

// New returns the BARs of a guest, which have no tables yet.
func New(cfg Config, stats *Stats) *BARs {
	w := &BARs{cfg: cfg, mem: cfg.Mem, stats: stats}
	w.maps = aperture.New(Owner(w), &stats.Mapped)
	w.bar1 = bar{bars: w, kind: aperture.BAR1}
	w.bar3 = bar{bars: w, kind: aperture.BAR3}
	return w
}

// OpenWindows makes windows for a client to map, as Config.Map says; cfg gives the sizes of
// BARs and of the poll area, and the ROM. The guest is fresh from a reset.
func (w *BARs) OpenWindows(cfg aperture.Config) error {
	if w.cfg.Map == aperture.MapNone || w.cfg.Quota == nil {
		return nil
	}
	if err := w.maps.Free(); err != nil {
		return err
	}
	cfg.Map, cfg.Format, cfg.VRAM, cfg.Limits = w.cfg.Map, w.cfg.Format, w.mem.Size(), w.cfg.Limits
	if err := w.cfg.Quota.take(w, len(w.mem.Extents()), &cfg.Limits); err != nil {
		return err
	}
	if err := w.maps.Open(cfg); err != nil {
		w.cfg.Quota.give(w)
		return err
	}
	w.bar1.show()
	w.bar3.show()
	w.PointPRAMIN(shadowpt.VRAM, 0)
	return nil
}

// CloseWindows closes the windows, see [aperture.Mapper.Close]. Any goroutine may call it.
func (w *BARs) CloseWindows() error {
	closed, err := w.maps.Close()
	if closed {
		w.cfg.Quota.give(w)
	}
	return err
}

// Regions lists what the client may map.
func (w *BARs) Regions() []aperture.Region { return w.maps.Regions() }

// ResetWindows makes what the client may map show nothing.
func (w *BARs) ResetWindows() { w.maps.Reset() }

// ShowBAR says what BAR1 or BAR3 shows: VRAM, or with virtual what the tables of s map. Without tables
// (nil) that is nothing.
func (w *BARs) ShowBAR(bar int, virtual bool, s *shadowpt.Space) {
	b := w.bar(bar)
	if b.state = (BARState{virtual, s != nil}); s == nil {
		s = &shadowpt.Space{}
	}
	b.tlb.Bind(w.cfg.Format, *s)
	b.show()
}

// ReadBAR reads through BAR1 or BAR3. Bytes after a fault read as ones.
func (w *BARs) ReadBAR(bar int, off uint64, p []byte) (Fault, bool) {
	return w.bar(bar).access(off, p, false)
}

// WriteBAR writes through BAR1 or BAR3.
func (w *BARs) WriteBAR(bar int, off uint64, p []byte) (Fault, bool) {
	return w.bar(bar).access(off, p, true)
}

// InvalidateWindows acts on an invalidate of the directory at dir, or of all.
func (w *BARs) InvalidateWindows(t shadowpt.Target, dir uint64, all bool) {
	w.bar1.tlb.Flush()
	w.bar3.tlb.Flush()
	w.maps.Invalidate(t, dir, all)
}

// ReadAt reads memory that the guest points at. Bytes outside of its own read as ones and are counted.
func (w *BARs) ReadAt(t shadowpt.Target, addr uint64, p []byte) {
	if !w.mem.Read(t, addr, p) {
		w.stats.BadWindow.Add(1)
		fill(p)
	}
}

// WriteAt writes memory that the guest points at.
func (w *BARs) WriteAt(t shadowpt.Target, addr uint64, p []byte) {
	if !w.mem.Write(t, addr, p) {
		w.stats.BadWindow.Add(1)
	}
}

// PointPRAMIN says where PRAMIN points. Accesses of a mapped window do not trap, so one that has none of
// the guest's memory to show is counted here.
func (w *BARs) PointPRAMIN(t shadowpt.Target, addr uint64) {
	if w.maps.Map()&aperture.MapPRAMIN != 0 && t == shadowpt.VRAM && addr >= w.mem.Size() {
		w.stats.BadWindow.Add(1)
	}
	w.maps.Window(t, addr)
}

// PollArea says where in BAR1 the doorbells are.
func (w *BARs) PollArea(off, n uint64) { w.maps.PollArea(off, n) }

// MemoryBarrier flushes aliases: afterwards the card finds all that the guest wrote to mapped
// windows before. Any goroutine may call it.
func (w *BARs) MemoryBarrier() { w.maps.MemoryBarrier() }

// Access is called before any access of a register.
func (w *BARs) Access() { w.maps.Access() }

// Shown reports whether mapped windows are up to date: a store goes to the right page.
func (w *BARs) Shown() bool { return !w.maps.Pending() }

// Owner is the guest of w as its aperture sees it.
func Owner(w *BARs) aperture.Owner { return owner{w.mem, w.cfg} }

type owner struct {
	*memory.Memory
	cfg Config
}

// Quiesce implements aperture.Owner: no channel of the guest's runs on the card, and the aggregator
// does not write the guest's memory. It may read a word, such as GP_PUT, and finds it where the page
// was or where it is.
func (o owner) Quiesce(do func()) {
	o.Move(func() {
		var ids []uint32
		for _, ch := range o.cfg.Channels.CardChannels() {
			ids = append(ids, ch.ID())
		}
		slices.Sort(ids)
		o.cfg.GPU.Relocator().QuiesceChannels(ids, do)
	})
}

// Direct implements aperture.Owner: the shadows must compare what is written there.
func (o owner) Direct(addr uint64, on bool) { o.cfg.Shadows.Untrapped(addr, shadowpt.SmallPage, on) }

// Relocate implements aperture.Owner.
func (o owner) Relocate(r card.Relocation) (uint64, error) {
	return o.Memory.Relocate(o.cfg.GPU.Relocator(), r)
}

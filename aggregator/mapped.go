package aggregator

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// The mapped windows of a guest's client. The calls come with the virtual GPU's lock held,
// or while a client attaches or detaches.

// OpenWindows makes windows for a client to map, as GuestConfig.Map says; cfg
// gives the sizes of BARs, and the ROM. The guest is fresh from a reset.
func (g *Guest) OpenWindows(cfg aperture.Config) error {
	if !g.maps() {
		return nil
	}
	if g.left.Load() != nil {
		return fmt.Errorf("aggregator: guest %s: the last client's windows are not closed", g.name)
	}
	cfg.Map, cfg.VRAM, cfg.Poll, cfg.Limits = g.limits.Map, g.extents.Size(), gf100.PollSize, g.mapLimits()
	if err := g.takeMappings(&cfg.Limits); err != nil {
		return err
	}
	set, err := aperture.New(cfg, owner{g}, &g.stats.Mapped)
	if err != nil {
		g.giveMappings()
		return err
	}
	g.mapped.Store(set)
	g.windows.bar1.show()
	g.windows.bar3.show()
	g.SetPRAMIN(0)
	return nil
}

// CloseWindows closes the windows and moves every page back to the card. If the card refuses some
// pages, the client can still reach them. CloseWindows then returns an error, and the next call
// tries again. Until it succeeds no other client may have the GPU.
func (g *Guest) CloseWindows() error {
	if set := g.mapped.Swap(nil); set != nil {
		g.left.Store(set)
	}
	set := g.left.Load()
	if set == nil {
		return nil
	}
	if err := set.Close(); err != nil {
		return fmt.Errorf("aggregator: guest %s: %w", g.name, err)
	}
	if g.left.CompareAndSwap(set, nil) {
		g.giveMappings()
	}
	return nil
}

// Windows lists what the client may map.
func (g *Guest) Windows() []aperture.Region {
	if set := g.mapped.Load(); set != nil {
		return set.Regions()
	}
	return nil
}

// show passes this window's current address space to the aperture.
func (w *barWindow) show() {
	if set := w.guest.mapped.Load(); set != nil {
		set.Block(w.kind, w.on, w.tlb.Space())
	}
}

// SetPRAMIN acts on a write of NV_PBUS_BAR0_WINDOW. Accesses of a mapped window do not
// trap, so one that has none of the guest's memory to show is counted here.
func (g *Guest) SetPRAMIN(win uint32) {
	set := g.mapped.Load()
	if set == nil {
		return
	}
	t, addr := pramin(win, 0)
	if g.limits.Map&aperture.MapPRAMIN != 0 && t == shadowpt.VRAM && addr >= g.extents.Size() {
		g.stats.BadWindow.Add(1)
	}
	set.Window(t, addr)
}

// SetPollArea acts on a write of NV_PFIFO_USERD_BASE.
func (g *Guest) SetPollArea(v uint32) {
	if set := g.mapped.Load(); set != nil {
		set.PollArea(uint64(v&gf100.BlockAddr)<<12, gf100.PollSize)
	}
}

// MemoryBarrier flushes aliases: afterwards the card finds all that the guest wrote to mapped
// windows before.
func (g *Guest) MemoryBarrier() {
	if set := g.mapped.Load(); set != nil {
		set.MemoryBarrier()
	}
}

// Access is called before any access of a register.
func (g *Guest) Access() {
	if set := g.mapped.Load(); set != nil {
		set.Access()
	}
}

// owner is the guest as its windows see it.
type owner struct{ guest *Guest }

// ReadTable implements aperture.Tables.
func (o owner) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool {
	return o.guest.read(t, addr, p)
}

// SameTable implements aperture.Tables.
func (o owner) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	return o.guest.SameTable(t, addr, p)
}

// Quiesce implements aperture.Owner: no channel of the guest's runs on the card, and the aggregator
// does not write the guest's memory. It may read a word, such as GP_PUT, and finds it where the page
// was or where it is.
func (o owner) Quiesce(do func()) {
	o.guest.moving.Lock()
	defer o.guest.moving.Unlock()
	o.guest.agg.gpu.Quiesce(o.guest.cardChannels(), do)
}

// Direct implements aperture.Owner: the shadows must compare what is written there.
func (o owner) Direct(addr uint64, on bool) { o.guest.tracker.Untrapped(addr, vram.PageSize, on) }

// Relocate implements aperture.Owner, through the guest's extents.
func (o owner) Relocate(r card.Relocation) (done uint64, err error) {
	for done < r.Size && err == nil {
		at, together, ok := o.guest.extents.At(r.Addr + done)
		if !ok {
			return done, nil
		}
		part := r
		part.Addr, part.Size, part.Off = at, min(r.Size-done, together), r.Off+done
		var n uint64
		n, err = o.guest.agg.gpu.Relocator().Relocate(part)
		done += n
	}
	return done, err
}

// maps reports whether the guest's client may map anything.
func (g *Guest) maps() bool {
	return g.limits.Map != aperture.MapNone && g.agg.gpu.Relocator() != nil
}

func (g *Guest) mapLimits() aperture.Limits {
	if g.limits.MapLimits != (aperture.Limits{}) {
		return g.limits.MapLimits
	}
	return g.agg.opts.Map
}

// cardChannels lists the card's channels that execute the guest's, and those that the card
// has not given back. A channel that is opened while pages move waits for them before it may
// run, see [Guest.open].
func (g *Guest) cardChannels() (list []card.Channel) {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	for ch := range g.live {
		list = append(list, ch.hw)
	}
	return list
}

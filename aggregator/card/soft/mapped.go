package soft

import (
	"bytes"
	"errors"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var errLeft = errors.New("pages of VRAM are still where the last client had them mapped")

// OpenWindows makes the windows that a client may map, by Config.Map. They show the present
// state of the BARs immediately.
func (c *Card) OpenWindows() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Map == aperture.MapNone {
		return nil
	}
	if c.left != nil {
		return errLeft
	}
	limits := c.cfg.MapLimits
	limits.FitMappings(c.MaxMappings())
	set, err := aperture.New(aperture.Config{
		Map: c.cfg.Map, VRAM: c.cfg.VRAM, ROM: c.cfg.ROM, Poll: gf100.PollSize,
		Limits: limits,
		BAR0:   c.pci.BARSize(BAR0), BAR1: c.pci.BARSize(BAR1), BAR3: c.pci.BARSize(BAR3),
	}, owner{c}, &c.stats.Windows)
	if err != nil {
		return err
	}
	c.windows = set
	c.pollAreaAt(c.regs.userdBase.Get())
	for i := range c.bars {
		c.bars[i].show()
	}
	c.showPRAMIN()
	return nil
}

// pollAreaAt notes where the poll area lies in BAR1, by NV_PFIFO_USERD_BASE.
func (c *Card) pollAreaAt(v uint32) {
	if c.windows != nil {
		c.windows.PollArea(uint64(v&gf100.InstanceAddr)<<12, gf100.PollSize)
	}
}

// CloseWindows ends them, and gives every page back. If the client can still reach some, CloseWindows
// returns an error, and tries again when it is called again.
func (c *Card) CloseWindows() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeWindows()
}

func (c *Card) closeWindows() error {
	if c.windows != nil {
		c.left, c.windows = c.windows, nil
	}
	if c.left == nil {
		return nil
	}
	if err := c.left.Close(); err != nil {
		return err
	}
	c.left = nil
	return nil
}

// Windows lists what the client may map.
func (c *Card) Windows() []aperture.Region {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.windows == nil {
		return nil
	}
	return c.windows.Regions()
}

// memoryBarrier is called before what orders memory.
func (c *Card) memoryBarrier() {
	if c.windows != nil {
		c.windows.MemoryBarrier()
	}
}

// beforeAccess is called before any access of a register.
func (c *Card) beforeAccess() {
	if c.windows != nil {
		c.windows.Access()
	}
}

func (c *Card) showPRAMIN() {
	if c.windows != nil {
		c.windows.Window(c.praminAt(0))
	}
}

// showAgain has the windows read the tables that an invalidate names.
func (c *Card) showAgain(command uint32) {
	if c.windows != nil {
		d := c.regs.named(command)
		c.windows.Invalidate(d.target, d.addr, d.all)
	}
}

// owner is the card as its client's windows use it. Its calls come with the windows' lock held, and
// with Card.mu where pages move.
type owner struct{ card *Card }

// ReadTable implements aperture.Tables.
func (o owner) ReadTable(t shadowpt.Target, addr uint64, p []byte) (ok bool) {
	o.card.access(t, func(t shadowpt.Target) {
		mem := o.card.memory(t, addr, len(p), nil)
		ok = mem != nil
		copy(p, mem)
	})
	return ok
}

// SameTable implements aperture.Tables.
func (o owner) SameTable(t shadowpt.Target, addr uint64, p []byte) (ok bool) {
	o.card.access(t, func(t shadowpt.Target) {
		mem := o.card.memory(t, addr, len(p), nil)
		ok = mem != nil && bytes.Equal(mem, p)
	})
	return ok
}

// Quiesce implements aperture.Owner.
func (o owner) Quiesce(do func()) {
	var all [gf100.Channels]uint8
	for i := range all {
		all[i] = uint8(i)
	}
	o.card.QuiesceChannels(all[:], do)
}

// Direct implements aperture.Owner. The card reads its tables on demand, so it needs no
// notice of direct writes.
func (o owner) Direct(uint64, bool) {}

// Relocate implements aperture.Owner.
func (o owner) Relocate(r card.Relocation) (uint64, error) { return o.card.Relocate(r) }

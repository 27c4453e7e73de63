package soft

import (
	"errors"
	"fmt"
)

// Rebuild is a power cycle with other parts: change edits a copy of the card's
// configuration, and the registers are built again from it. Another VBIOS, other TPCs,
// engines on or off, an ablation or none: a host that detaches and attaches again finds
// another board. VRAM's size and the PCI function must stay, for the host has enumerated
// them.
//
// The counters of [Card.Registers] start again, those of [Card.Stats] continue. If the new
// board cannot be built, the card is reset with its old configuration.
func (c *Card) Rebuild(change func(*Config)) error {
	defer c.reportEnded()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halt()
	c.contexts.forget()
	err := c.rebuild(change)
	return errors.Join(err, c.powerOn())
}

func (c *Card) rebuild(change func(*Config)) error {
	cfg, sp, face, regs := c.cfg, c.sp, c.face, c.regs
	change(&c.cfg)
	err := error(nil)
	if c.cfg.VRAM != cfg.VRAM || c.cfg.PCI != cfg.PCI {
		err = errors.New("VRAM's size or the PCI function differ: they need another card")
	} else {
		err = c.buildSpace()
	}
	if err != nil {
		c.cfg, c.sp, c.face, c.regs = cfg, sp, face, regs
		return fmt.Errorf("rebuild the card: %w", err)
	}
	return nil
}

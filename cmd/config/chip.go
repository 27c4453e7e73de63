package config

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// memory is how the memory of a GPU of a chip is made up.
type memory struct {
	most     Size
	unit     Size   // vram must be a multiple of it
	why      string // of more than a MiB
	reserved Size   // that the chip has beside what the driver gets
}

// memories are the chips'.
var memories = map[string]memory{
	"gf100": {most: gf100.MaxVRAM, unit: mib},
	"gh100": {most: 60 << 10 * mib, unit: 4 << 10 * mib, why: "its driver saves the rest of 4GiB in the guest's RAM at each suspend and power-off", reserved: gsp.Reserved},
}

// VRAMOf says what memory a GPU of a chip may have: from least to most, a multiple of unit.
func VRAMOf(chip string) (least, most, unit Size) {
	m := memories[chip]
	return max(leastGPU, m.unit), m.most, m.unit
}

// Memory is the card's memory that a GPU takes, without page tables: vram, which is what its driver gets,
// and what the chip reserves.
func (g *GPU) Memory() Size { return g.VRAM + memories[g.Chip].reserved }

func (g *GPU) checkMemory() error {
	m := memories[g.Chip]
	switch {
	case g.VRAM > m.most:
		return &Error{g.Where("vram"), g.VRAM.String(), fmt.Sprintf("a %s (%s) has at most %v; give it less", g.Chip, g.Where("chip"), m.most)}
	case g.VRAM%m.unit == 0:
		return nil
	}
	fits := (g.VRAM/m.unit + 1) * m.unit
	if g.VRAM > m.unit && g.VRAM%m.unit == m.reserved { // as the guest's driver shows it
		fits -= m.unit
	}
	return &Error{g.Where("vram"), g.VRAM.String(), fmt.Sprintf("a %s (%s) has a multiple of %v: %s; give vram=%v, or another chip", g.Chip, g.Where("chip"), m.unit, m.why, fits)}
}

// DefaultFace is what guests see of a chip without options.
func DefaultFace(chip string) (f Face) {
	setDefaults(&f)
	f.Chip = chip
	useDefaults(options(&f), chip, func(string) bool { return false })
	return f
}

// useDefaults sets options that are not given to the defaults of a chip, where it has its own.
func useDefaults(of []option, chip string, given func(key string) bool) {
	for i := range of {
		if text, own := of[i].tag.Lookup(chip); own && !given(of[i].path) {
			if err := of[i].set(text); err != nil {
				panic(fmt.Sprintf("config: default of %s of a %s: %v", of[i].path, chip, err))
			}
		}
	}
}

// checkCard refuses options of the card that its chip, or its kind, does not have.
func (c *Config) checkCard() error {
	return errors.Join(unfit(options(c), c.given.settings, "chip", c.Card.Chip, c.Where("card.chip")), c.unfitKind(options(c), c.given.settings))
}

// unfitKind refuses given options that the card's kind does not have.
func (c *Config) unfitKind(of []option, given []setting) error {
	return unfit(of, given, "kind", c.Card.Kind, c.Where("card.kind"))
}

// unfit refuses given options that are only for another chip or kind of card, which the user gave as where says.
func unfit(of []option, given []setting, tag, is, where string) error {
	var errs []error
	for _, s := range given {
		if s.bad {
			continue
		}
		o := find(of, s.key)
		if own, ok := o.tag.Lookup(tag); ok && own != is {
			errs = append(errs, &Error{s.where, o.text(), fmt.Sprintf("only a %s%s has this option, and the %s is %s (%s); remove the option, or say %[3]s %[1]s",
				own, map[string]string{"kind": " card"}[tag], tag, is, where)})
		}
	}
	return errors.Join(errs...)
}

// settleNvidia sets what follows from the card being an NVIDIA card, and refuses what it cannot do.
func (c *Config) settleNvidia() error {
	if !c.Given("card.chip") {
		c.Card.Chip = nvidiaChip
	}
	if !c.Given("card.bar-map") {
		c.Card.BARMap = nvidiaMap
	}
	c.Card.VRAM = 0 // until the card is open
	if p := c.Scheduler.Policy; p != SchedulerAuto && p != SchedulerOff {
		return &Error{c.Where("scheduler.policy"), p, "an NVIDIA card shares its engines itself, in time slices by weight; remove the option"}
	}
	c.Scheduler.Policy = SchedulerOff
	return c.checkNvidiaFace(&c.Card.Face, func(key string) string { return c.Where("card." + key) })
}

// checkNvidiaFace refuses what guests cannot see of an NVIDIA card. The user gave the options as where says.
func (c *Config) checkNvidiaFace(f *Face, where func(key string) string) error {
	const why = "the card is an NVIDIA card (%s), on which virtual GPUs have %s; leave the option out"
	switch {
	case c.Card.Kind != Nvidia:
		return nil
	case f.Chip != nvidiaChip:
		return &Error{where("chip"), f.Chip, fmt.Sprintf(why, c.Where("card.kind"), "the chip "+nvidiaChip)}
	case f.BARMap&^nvidiaMap != 0:
		return &Error{where("bar-map"), fmt.Sprint(f.BARMap), fmt.Sprintf(why, c.Where("card.kind"), fmt.Sprintf("bar-map none or %v", nvidiaMap))}
	}
	return nil
}

// has reports whether an option is there although the chip or kind of card is what is has by tag, "" if unknown.
func (o *option) has(tag string, is map[string]string) bool {
	own, ok := o.tag.Lookup(tag)
	return !ok || is[tag] == "" || own == is[tag]
}

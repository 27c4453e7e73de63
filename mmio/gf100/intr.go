package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Source is a unit that can ask the host for an interrupt.
type Source uint8

// The sources, in the order of their bits in NV_PMC_INTR.
const (
	SourceMSPPP Source = iota
	SourceCE0
	SourceCE1
	SourcePFIFO
	SourcePGRAPH
	SourcePBFB
	SourceMSVLD
	SourceMSPDEC
	SourcePTHERM
	SourcePTIMER
	SourcePNVIO
	SourcePMU
	SourceLTC
	SourcePDISPLAY
	SourcePFFB
	SourcePBUS
	SourcePPCI
	SourcePRIVRING

	sourceCount
)

// term is a pair of registers that requests an interrupt if they have a common bit.
type term struct{ status, enable string }

// sourceRow has the bit of a source in NV_PMC_INTR and the registers of this package from
// which its level is computed. A source without terms belongs to another package: the owner
// reports its level by SetSource.
type sourceRow struct {
	name  string
	bit   uint8
	terms []term
}

var sourceRows = [sourceCount]sourceRow{
	SourceMSPPP:  {name: "MSPPP", bit: 0},
	SourceCE0:    {name: "CE0", bit: 5},
	SourceCE1:    {name: "CE1", bit: 6},
	SourcePFIFO:  {name: "PFIFO", bit: 8},
	SourcePGRAPH: {name: "PGRAPH", bit: 12, terms: []term{{"NV_PGRAPH_INTR", "NV_PGRAPH_INTR_EN"}}},
	SourcePBFB:   {name: "PBFB", bit: 13},
	SourceMSVLD:  {name: "MSVLD", bit: 15},
	SourceMSPDEC: {name: "MSPDEC", bit: 17},
	SourcePTHERM: {name: "PTHERM", bit: 18},
	SourcePTIMER: {name: "PTIMER", bit: 20, terms: []term{{"NV_PTIMER_INTR_0", "NV_PTIMER_INTR_EN_0"}}},
	SourcePNVIO: {name: "PNVIO", bit: 21, terms: []term{
		{"NV_PNVIO_GPIO_INTR_0", "NV_PNVIO_GPIO_INTR_EN_0"}, {"NV_PNVIO_GPIO_INTR_1", "NV_PNVIO_GPIO_INTR_EN_1"},
		{"NV_PNVIO_AUXCH_INTR", "NV_PNVIO_AUXCH_INTR_EN"},
	}},
	SourcePMU: {name: "PMU", bit: 24},
	SourceLTC: {name: "LTC", bit: 25},
	SourcePDISPLAY: {name: "PDISPLAY", bit: 26, terms: []term{
		{"NV_PDISPLAY_INTR_0", "NV_PDISPLAY_INTR_EN_0"}, {"NV_PDISPLAY_INTR_1", "NV_PDISPLAY_INTR_EN_1"},
	}},
	SourcePFFB:     {name: "PFFB", bit: 27},
	SourcePBUS:     {name: "PBUS", bit: 28, terms: []term{{"NV_PBUS_INTR_0", "NV_PBUS_INTR_EN_0"}}},
	SourcePPCI:     {name: "PPCI", bit: 29},
	SourcePRIVRING: {name: "PRIVRING", bit: 30},
}

// String returns the unit's name.
func (s Source) String() string {
	if s < sourceCount {
		return sourceRows[s].name
	}
	return "Source(?)"
}

// Bits of NV_PMC_INTR_EN.
const (
	enHardware = 1 << 0
	enSoftware = 1 << 1

	intrSoftware = 1 << 31
)

// tree computes PMC's interrupt line from what the units report.
//
//	leaf  = levels of the sources, and bit 31 if software set it
//	line  = any leaf with (leaf & mask) and its enable bit
//
// An edge is reported once for each time the line rises, and again when the
// driver re-enables a leaf while something is pending, as a message signalled
// interrupt needs.
type tree struct {
	reported uint32 // levels by SetSource, one bit per source
	last     bool   // the line at the last Settle
	again    bool   // a leaf was re-enabled since

	computed  []computedSource
	falcons   []falconSource
	soft      [leaves]mmio.Cell
	en, masks [leaves]mmio.Cell
}

type computedSource struct {
	bit   uint32
	terms [][2]mmio.Cell
}

// falconSource is a source whose level its controller computes.
type falconSource struct {
	src    Source
	falcon *falcon
}

func (t *tree) bind(b *mmio.Bindings, f *Face) {
	b.OnRead("NV_PMC_INTR", func(i int, v uint32) uint32 { f.timer.tick(); return t.leaf(i) })
	b.OnRead("NV_PMC_INTR_LN", func(i int, v uint32) uint32 {
		f.timer.tick()
		if t.lineOf(i) {
			return 1
		}
		return 0
	})
	b.OnWrite("NV_PMC_INTR_EN", func(i int, w mmio.Write) {
		if w.Data&(enHardware|enSoftware) != 0 {
			t.again = true
		}
	})
}

func (t *tree) attach(s *mmio.Space) {
	for i := range leaves {
		t.soft[i] = s.Cell("NV_PMC_INTR", i)
		t.en[i] = s.Cell("NV_PMC_INTR_EN", i)
		t.masks[i] = s.Cell("NV_PMC_INTR_MASK", i)
	}
	t.computed = nil
	for _, row := range sourceRows {
		if row.terms == nil {
			continue
		}
		c := computedSource{bit: 1 << row.bit}
		for _, m := range row.terms {
			c.terms = append(c.terms, [2]mmio.Cell{s.Cell(m.status, 0), s.Cell(m.enable, 0)})
		}
		t.computed = append(t.computed, c)
	}
}

func (t *tree) reset() { t.reported, t.last, t.again = 0, false, false }

func (t *tree) set(src Source, level bool) {
	bit := uint32(1) << sourceRows[src].bit
	if level {
		t.reported |= bit
	} else {
		t.reported &^= bit
	}
}

// leaf returns NV_PMC_INTR of one leaf. No unit of this chip reports to leaf 1.
func (t *tree) leaf(i int) uint32 {
	v := t.soft[i].Get() & intrSoftware
	if i != 0 {
		return v
	}
	v |= t.reported
	for _, c := range t.computed {
		for _, m := range c.terms {
			if m[0].Get()&m[1].Get() != 0 {
				v |= c.bit
			}
		}
	}
	for _, c := range t.falcons {
		if c.falcon.hostIntr() {
			v |= 1 << sourceRows[c.src].bit
		}
	}
	return v
}

func (t *tree) lineOf(i int) bool {
	v, en := t.leaf(i)&t.masks[i].Get(), t.en[i].Get()
	return v&^intrSoftware != 0 && en&enHardware != 0 || v&intrSoftware != 0 && en&enSoftware != 0
}

func (t *tree) settle() (level, edge bool) {
	level = t.lineOf(0) || t.lineOf(1)
	edge = level && (!t.last || t.again)
	t.last, t.again = level, false
	return level, edge
}

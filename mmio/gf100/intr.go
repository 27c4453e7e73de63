package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Bits of NV_PMC_INTR: the units that ask the host for an interrupt, and software.
const (
	intrCE0      = 1 << 5
	intrCE1      = 1 << 6
	intrPFIFO    = 1 << 8
	intrPGRAPH   = 1 << 12
	intrPTIMER   = 1 << 20
	intrPNVIO    = 1 << 21
	intrPMU      = 1 << 24
	intrPDISPLAY = 1 << 26
	intrPBUS     = 1 << 28
	intrSoftware = 1 << 31
)

// intrTerms are pairs of registers that request a unit's interrupt if they have a common bit.
var intrTerms = []struct {
	unit           uint32
	status, enable string
}{
	{intrPGRAPH, "NV_PGRAPH_INTR", "NV_PGRAPH_INTR_EN"},
	{intrPTIMER, "NV_PTIMER_INTR_0", "NV_PTIMER_INTR_EN_0"},
	{intrPNVIO, "NV_PNVIO_GPIO_INTR_0", "NV_PNVIO_GPIO_INTR_EN_0"},
	{intrPNVIO, "NV_PNVIO_GPIO_INTR_1", "NV_PNVIO_GPIO_INTR_EN_1"},
	{intrPNVIO, "NV_PNVIO_AUXCH_INTR", "NV_PNVIO_AUXCH_INTR_EN"},
	{intrPDISPLAY, "NV_PDISPLAY_INTR_0", "NV_PDISPLAY_INTR_EN_0"},
	{intrPDISPLAY, "NV_PDISPLAY_INTR_1", "NV_PDISPLAY_INTR_EN_1"},
	{intrPBUS, "NV_PBUS_INTR_0", "NV_PBUS_INTR_EN_0"},
}

// Bits of NV_PMC_INTR_EN.
const (
	enHardware = 1 << 0
	enSoftware = 1 << 1
)

// tree computes PMC's interrupt line from what the units report.
//
//	leaf  = levels of the units, and bit 31 if software set it
//	line  = any leaf with (leaf & mask) and its enable bit
//
// An edge is reported once for each time the line rises, and again when the
// driver re-enables a leaf while something is pending, as a message signalled
// interrupt needs.
type tree struct {
	fifo  bool // PFIFO's level, which the owner computes
	last  bool // the line at the last Settle
	again bool // a leaf was re-enabled since

	terms     []intrTerm
	falcons   []falconSource
	soft      [leaves]mmio.Cell
	en, masks [leaves]mmio.Cell
}

type intrTerm struct {
	unit           uint32
	status, enable mmio.Cell
}

// falconSource is a unit whose level its controller computes.
type falconSource struct {
	unit   uint32
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
	t.terms = nil
	for _, m := range intrTerms {
		t.terms = append(t.terms, intrTerm{m.unit, s.Cell(m.status, 0), s.Cell(m.enable, 0)})
	}
}

func (t *tree) reset() { t.fifo, t.last, t.again = false, false, false }

// leaf returns NV_PMC_INTR of one leaf. No unit of this chip reports to leaf 1.
func (t *tree) leaf(i int) uint32 {
	v := t.soft[i].Get() & intrSoftware
	if i != 0 {
		return v
	}
	if t.fifo {
		v |= intrPFIFO
	}
	for _, m := range t.terms {
		if m.status.Get()&m.enable.Get() != 0 {
			v |= m.unit
		}
	}
	for _, c := range t.falcons {
		if c.falcon.hostIntr() {
			v |= c.unit
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

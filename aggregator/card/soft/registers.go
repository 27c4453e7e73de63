package soft

import (
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// registers are the cells of the register space that the card itself writes, or reads
// between accesses. Guarded by Card.mu.
type registers struct {
	gf100.FIFOReport

	window                    mmio.Cell
	pfifoEnable, schedDisable mmio.Cell
	userdBase, runlistBase    mmio.Cell
	invalidatePDB             mmio.Cell
}

func (r *registers) resolve(s *mmio.Space) {
	r.Attach(s)
	for _, c := range []struct {
		cell *mmio.Cell
		name string
	}{
		{&r.window, "NV_PBUS_BAR0_WINDOW"},
		{&r.pfifoEnable, "NV_PFIFO_ENABLE"},
		{&r.schedDisable, "NV_PFIFO_SCHED_DISABLE"},
		{&r.userdBase, "NV_PFIFO_USERD_BASE"},
		{&r.runlistBase, "NV_PFIFO_RUNLIST_BASE"},
		{&r.invalidatePDB, "NV_PFB_PRI_MMU_INVALIDATE_PDB"},
	} {
		*c.cell = s.Cell(c.name, 0)
	}
}

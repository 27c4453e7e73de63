package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Where nouveau's microcode has its message rings in data memory, their size, and the interrupts
// that it routes to the host.
const (
	pmuSendRing = 0x800
	pmuRecvRing = 0x880
	pmuRingSize = 0x80
	pmuIntrHost = 0xe0
)

var pmuView = falconView{
	prefix: "NV_PPWR", base: 0x10a000,
	spec: falconSpec{hwcfg: 0x60 | 0x60<<9, hwcfg1: 0x4403},
}

var ppwr = mmio.Block{
	Name:   "PPWR",
	Source: "envytools rnndb/pm/pdaemon.xml, rnndb/falcon.xml; NVIDIA dev_pwr_pri",
	Regs: append(pmuView.regs(), []mmio.Reg{
		{Name: "NV_PPWR_PMU_TOKEN_ALLOC", Offset: 0x10a488, Stub: true},
		{Name: "NV_PPWR_PMU_TOKEN_FREE", Offset: 0x10a48c, Stub: true},
		{Name: "NV_PPWR_PMU_QUEUE_HEAD", Offset: 0x10a4a0, Rep: []mmio.Dim{{Count: 4, Stride: 4}}, Stub: true},
		{Name: "NV_PPWR_PMU_QUEUE_TAIL", Offset: 0x10a4b0, Rep: []mmio.Dim{{Count: 4, Stride: 4}}},
		{Name: "NV_PPWR_PMU_QUEUE_INTR", Offset: 0x10a4c0, Access: mmio.W1C},
		{Name: "NV_PPWR_PMU_QUEUE_INTR_EN", Offset: 0x10a4c4},
		{Name: "NV_PPWR_PMU_MSGQ_HEAD", Offset: 0x10a4c8},
		{Name: "NV_PPWR_PMU_MSGQ_TAIL", Offset: 0x10a4cc, Stub: true},
		{Name: "NV_PPWR_PMU_H2D", Offset: 0x10a4d0},
		{Name: "NV_PPWR_PMU_H2D_INTR", Offset: 0x10a4d4, Access: mmio.W1C},
		{Name: "NV_PPWR_PMU_H2D_INTR_EN", Offset: 0x10a4d8},
		{Name: "NV_PPWR_PMU_D2H", Offset: 0x10a4dc},
		{Name: "NV_PPWR_PMU_MUTEX", Offset: 0x10a580, Rep: []mmio.Dim{{Count: 16, Stride: 4}}, Stub: true},
		{Name: "NV_PPWR_PMU_DSCRATCH", Offset: 0x10a5d0, Rep: []mmio.Dim{{Count: 4, Stride: 4}}},
		{Name: "NV_PPWR_PMU_MMIO_ADDR", Offset: 0x10a7a0},
		{Name: "NV_PPWR_PMU_MMIO_VALUE", Offset: 0x10a7a4},
	}...),
}

// pmuUnit starts as nouveau's PMU microcode does, and announces its message rings. It answers no
// message: drivers send them to change clocks, which they do not on this chip.
type pmuUnit struct {
	*falcon
	h2d, d2h mmio.Cell
}

func newPMU() *pmuUnit {
	u := &pmuUnit{falcon: newFalcon(pmuView.spec)}
	u.started = u.boot
	return u
}

func (u *pmuUnit) bind(b *mmio.Bindings) { pmuView.bind(b, []*falcon{u.falcon}) }

func (u *pmuUnit) attach(s *mmio.Space) {
	u.h2d, u.d2h = s.Cell("NV_PPWR_PMU_H2D", 0), s.Cell("NV_PPWR_PMU_D2H", 0)
}

// stop is a reset by PMC: the rings do not exist until the microcode runs again.
func (u *pmuUnit) stop() {
	u.falcon.reset()
	u.h2d.Put(0)
	u.d2h.Put(0)
}

// boot announces the rings: offset in data memory, and size in the high half.
func (u *pmuUnit) boot() {
	u.h2d.Put(pmuRingSize<<16 | pmuSendRing)
	u.d2h.Put(pmuRingSize<<16 | pmuRecvRing)
	u.Route = pmuIntrHost
}

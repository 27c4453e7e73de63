package gf100

import "github.com/umbra-gpu/umbra/mmio"

var (
	heads = mmio.Dim{Count: 2, Stride: 0x800}
	dacs  = mmio.Dim{Count: 3, Stride: 0x800}
	sors  = mmio.Dim{Count: 4, Stride: 0x800}
	piors = mmio.Dim{Count: 3, Stride: 0x800}
)

// pdisplay is the display engine as a driver meets it with no connector: it
// copies the capabilities of its parts to the core and enables interrupts. The
// engine is fused off; drivers that do not ask for the fuse find this.
var pdisplay = mmio.Block{
	Name:   "PDISPLAY",
	Source: "envytools rnndb/display/g80_pdisplay.xml",
	Regs: []mmio.Reg{
		stub("NV_PDISPLAY_OBJECTS", 0x610010),
		{Name: "NV_PDISPLAY_INTR_0", Offset: 0x610020, Access: mmio.W1C},
		{Name: "NV_PDISPLAY_INTR_1", Offset: 0x610024, Access: mmio.W1C},
		{Name: "NV_PDISPLAY_INTR_EN_0", Offset: 0x610028},
		{Name: "NV_PDISPLAY_INTR_EN_1", Offset: 0x61002c},
		stub("NV_PDISPLAY_UNK30_CTRL", 0x610030),
		stub("NV_PDISPLAY_UNK50_CTRL", 0x610050),
		stubs("NV_PDISPLAY_TRAPPED_ADDR", 0x610080, 5, 8),
		stubs("NV_PDISPLAY_TRAPPED_DATA", 0x610084, 5, 8),
		stub("NV_PDISPLAY_CAP", 0x610184),
		stubs("NV_PDISPLAY_CORE_HEAD_CAP_A", 0x610190, 2, 0x10),
		stubs("NV_PDISPLAY_CORE_HEAD_CAP_B", 0x610194, 2, 0x10),
		stubs("NV_PDISPLAY_CORE_HEAD_CAP_C", 0x610198, 2, 0x10),
		stubs("NV_PDISPLAY_CORE_HEAD_CAP_D", 0x61019c, 2, 0x10),
		stubs("NV_PDISPLAY_CORE_DAC_CAP", 0x6101d0, 3, 4),
		stubs("NV_PDISPLAY_CORE_SOR_CAP", 0x6101e0, 4, 4),
		stubs("NV_PDISPLAY_CORE_PIOR_CAP", 0x6101f0, 3, 4),
		stubs("NV_PDISPLAY_CHANNEL_STAT", 0x610200, 9, 0x10),
		stubs("NV_PDISPLAY_CHANNEL_DMA_CB", 0x610204, 9, 0x10),
		stubs("NV_PDISPLAY_CHANNEL_UNK2", 0x610208, 9, 0x10),
		stubs("NV_PDISPLAY_CHANNEL_UNK3", 0x61020c, 9, 0x10),
		stub("NV_PDISPLAY_UNK1200", 0x611200),
		{Name: "NV_PDISPLAY_CLOCK_CAP", Offset: 0x614004, Access: mmio.RO},
		{Name: "NV_PDISPLAY_CLOCK_VPLL_CTRL2", Offset: 0x614200, Rep: []mmio.Dim{heads}, Stub: true},
		{Name: "NV_PDISPLAY_CLOCK_DAC", Offset: 0x614280, Rep: []mmio.Dim{dacs}, Stub: true},
		{Name: "NV_PDISPLAY_CLOCK_SOR", Offset: 0x614300, Rep: []mmio.Dim{sors}, Stub: true},
		{Name: "NV_PDISPLAY_CLOCK_UNK380", Offset: 0x614380, Rep: []mmio.Dim{piors}, Stub: true},
		{Name: "NV_PDISPLAY_HEAD_CAP_A", Offset: 0x616100, Rep: []mmio.Dim{heads}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_HEAD_CAP_B", Offset: 0x616104, Rep: []mmio.Dim{heads}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_HEAD_CAP_C", Offset: 0x616108, Rep: []mmio.Dim{heads}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_HEAD_CAP_D", Offset: 0x61610c, Rep: []mmio.Dim{heads}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_HEAD_STAT_VERT", Offset: 0x616340, Rep: []mmio.Dim{heads}, Access: mmio.RO, Stub: true},
		{Name: "NV_PDISPLAY_HEAD_STAT_HORZ", Offset: 0x616344, Rep: []mmio.Dim{heads}, Access: mmio.RO, Stub: true},
		stub("NV_PDISPLAY_VGA_UNK94E8", 0x6194e8),
		{Name: "NV_PDISPLAY_VGA_ROM_WINDOW", Offset: 0x619f04, Stub: true},
		{Name: "NV_PDISPLAY_DAC_CAP", Offset: 0x61a000, Rep: []mmio.Dim{dacs}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_DAC_DPMS_CTRL", Offset: 0x61a004, Rep: []mmio.Dim{dacs}, Stub: true},
		{Name: "NV_PDISPLAY_DAC_LOAD_CTRL", Offset: 0x61a00c, Rep: []mmio.Dim{dacs}, Stub: true},
		{Name: "NV_PDISPLAY_SOR_CAP", Offset: 0x61c000, Rep: []mmio.Dim{sors}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_SOR_PWR", Offset: 0x61c004, Rep: []mmio.Dim{sors}, Stub: true},
		{Name: "NV_PDISPLAY_SOR_BLANK", Offset: 0x61c030, Rep: []mmio.Dim{sors}, Stub: true},
		stub("NV_PDISPLAY_SOR_UNK140", 0x61c140),
		{Name: "NV_PDISPLAY_PIOR_CAP", Offset: 0x61e000, Rep: []mmio.Dim{piors}, Access: mmio.RO},
		{Name: "NV_PDISPLAY_PIOR_UNK004", Offset: 0x61e004, Rep: []mmio.Dim{piors}, Stub: true},
	},
}

// prmio is the one pair of VGA registers that drivers still use: CRTC index
// and data. Register 1f is the lock of NVIDIA's extensions.
var prmio = mmio.Block{
	Name:   "PRMIO",
	Source: "envytools rnndb/bus/prm.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PRMIO_CRX", Offset: 0x6013d4, Width: 1},
		{Name: "NV_PRMIO_CR", Offset: 0x6013d5, Width: 1, Effect: "the CRTC register that 6013d4 points at"},
	},
}

type prmioUnit struct {
	index mmio.Cell
	crtc  [256]byte
}

func (u *prmioUnit) bind(b *mmio.Bindings) {
	b.On("NV_PRMIO_CR", mmio.Hooks{
		Read:  func(int, uint32) uint32 { return uint32(u.crtc[u.index.Get()&0xff]) },
		Write: func(_ int, w mmio.Write) { u.crtc[u.index.Get()&0xff] = byte(w.New) },
	})
}

func (u *prmioUnit) attach(s *mmio.Space) { u.index = s.Cell("NV_PRMIO_CRX", 0) }

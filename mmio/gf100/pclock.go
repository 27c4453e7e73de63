package gf100

import "github.com/umbra-gpu/umbra/mmio"

const (
	pllEnable = 1 << 0
	pllLocked = 1 << 17
)

// pclock is the clock tree: PLLs, dividers and selectors. Nothing in the model
// runs at these speeds; they are stored, and a PLL locks as soon as it is
// enabled. All zero means that every clock is the crystal.
var pclock = mmio.Block{
	Name:   "PCLOCK",
	Source: "envytools rnndb/pm/gf100_pclock.xml",
	Regs: []mmio.Reg{
		pll("NV_PMPLL_MCLK_CTRL", 0x132000, []mmio.Dim{{Count: 2, Stride: 0x20}}),
		stubs("NV_PMPLL_MCLK_COEF", 0x132004, 2, 0x20),
		stub("NV_PMPLL_UNK100", 0x132100),
		pll("NV_PCLOCK_CLK_CTRL", 0x137000, []mmio.Dim{{Count: 8, Stride: 0x20}}),
		stubs("NV_PCLOCK_CLK_COEF", 0x137004, 8, 0x20),
		stub("NV_PCLOCK_SRC_SEL", 0x137100),
		stubs("NV_PCLOCK_CLK_PLL_REF_DIV_SRC", 0x137120, 8, 4),
		stubs("NV_PCLOCK_CLK_PLL_REF_DIV_CTRL", 0x137140, 8, 4),
		stubs("NV_PCLOCK_CLK_DIV_SRC", 0x137160, 16, 4),
		stubs("NV_PCLOCK_CLK_DIV_CTRL", 0x1371d0, 16, 4),
		stubs("NV_PCLOCK_CLK_POST_DIV_CTRL", 0x137250, 16, 4),
		stub("NV_PCLOCK_MCLK_PLL0_REF_DIV_SRC", 0x137300),
		stub("NV_PCLOCK_MCLK_PLL0_REF_DIV_CTRL", 0x137310),
		stub("NV_PCLOCK_UNK320", 0x137320),
		stub("NV_PCLOCK_UNK330", 0x137330),
		stub("NV_PCLOCK_UNK360", 0x137360),
		stub("NV_PCLOCK_UNK390", 0x137390),
		stub("NV_PCLOCK_UNK3EC", 0x1373ec),
		stub("NV_PCLOCK_SRC_SEL2", 0x1373f0),
		stub("NV_PCLOCK_UNK3F8", 0x1373f8),
		stub("NV_PXBAR_UNK28F4", 0x13d8f4),
	},
}

// pllRows are the rows that pll made; pclockUnit binds them.
var pllRows = []string{"NV_PNVIO_RPLL1_CTRL", "NV_PNVIO_RPLL2_CTRL", "NV_PMPLL_MCLK_CTRL", "NV_PCLOCK_CLK_CTRL"}

func pll(name string, off uint32, rep []mmio.Dim) mmio.Reg {
	return mmio.Reg{Name: name, Offset: off, Rep: rep, Effect: "bit 17 reads locked while bit 0 enables"}
}

type pclockUnit struct{}

func (pclockUnit) bind(b *mmio.Bindings) {
	for _, name := range pllRows {
		b.OnRead(name, func(_ int, v uint32) uint32 {
			if v&pllEnable != 0 {
				return v | pllLocked
			}
			return v &^ pllLocked
		})
	}
}

func (pclockUnit) attach(*mmio.Space) {}
func (pclockUnit) reset()             {}

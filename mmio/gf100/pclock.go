package gf100

import "github.com/umbra-gpu/umbra/mmio"

// pclock is the clock tree: PLLs, dividers and selectors. Nothing in the model
// runs at these speeds. All zero means that every clock is the crystal.
var pclock = mmio.Block{
	Name:   "PCLOCK",
	Source: "envytools rnndb/pm/gf100_pclock.xml",
	Regs: []mmio.Reg{
		stubs("NV_PMPLL_MCLK_CTRL", 0x132000, 2, 0x20),
		stubs("NV_PMPLL_MCLK_COEF", 0x132004, 2, 0x20),
		stub("NV_PMPLL_UNK100", 0x132100),
		stubs("NV_PCLOCK_CLK_CTRL", 0x137000, 8, 0x20),
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

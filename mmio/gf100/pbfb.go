package gf100

import "github.com/umbra-gpu/umbra/mmio"

var fbps = mmio.Dim{Count: MaxFBPs, Stride: 0x1000}

// pbfb is the memory controllers, one in each framebuffer partition.
var pbfb = mmio.Block{
	Name:   "PBFB",
	Source: "envytools rnndb/memory/gf100_pbfb.xml, gf100_pffb.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PFB_NISO_FLUSH_SYSMEM_ADDR", Offset: 0x100c10, Stub: true},
		{Name: "NV_PFFB_PART_COUNT", Offset: 0x100800, Access: mmio.RO, Effect: "reads the number of framebuffer partitions"},
		{Name: "NV_PBFB_MEM_AMOUNT", Offset: 0x11020c, Rep: []mmio.Dim{fbps}, Access: mmio.RO, Effect: "reads the MiB of memory on the partition"},
	},
}

type pbfbUnit struct {
	fbps int
	mib  uint32
}

func (u *pbfbUnit) bind(b *mmio.Bindings) {
	count := func(int, uint32) uint32 { return uint32(u.fbps) }
	b.OnRead("NV_PFFB_PART_COUNT", count)
	b.OnRead("NV_PIBUS_MAIN_PART_COUNT", count)
	b.OnRead("NV_PBFB_MEM_AMOUNT", func(i int, _ uint32) uint32 {
		if i < u.fbps {
			return u.mib
		}
		return 0
	})
}

func (u *pbfbUnit) attach(*mmio.Space) {}
func (u *pbfbUnit) reset()             {}

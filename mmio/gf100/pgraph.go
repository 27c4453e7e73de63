package gf100

import "github.com/umbra-gpu/umbra/mmio"

// pgraphFE is PGRAPH's front end: what the host can say to it past the channels.
var pgraphFE = mmio.Block{
	Name:   "PGRAPH_FE",
	Source: "envytools rnndb/graph/gf100_pgraph/pgraph.xml; NVIDIA pri_fe.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PGRAPH_PRI_FE_PWR_MODE", Offset: 0x404170, Fields: []mmio.Field{
			// Bit 4 asks for the mode in the bits below; it is done at once.
			{Name: "REQ", Hi: 4, Lo: 4, Access: mmio.RO},
		}},
		{Name: "NV_PGRAPH_PRI_MME_SHADOW_RAM_INDEX", Offset: 0x404488, Effect: "bit 31 gives the method in bits 30:16 of the class in bits 15:0 the data of 40448c"},
		{Name: "NV_PGRAPH_PRI_MME_SHADOW_RAM_DATA", Offset: 0x40448c},
	},
}

const methodTrigger = 1 << 31

type pgraphUnit struct {
	face *Face
	data mmio.Cell
}

func (u *pgraphUnit) bind(b *mmio.Bindings) {
	b.OnWrite("NV_PGRAPH_PRI_MME_SHADOW_RAM_INDEX", func(_ int, w mmio.Write) {
		if w.New&methodTrigger != 0 && u.face.onMethod != nil {
			u.face.onMethod(w.New&0xffff, w.New>>16&0x7fff<<2, u.data.Get())
		}
	})
}

func (u *pgraphUnit) attach(s *mmio.Space) {
	u.data = s.Cell("NV_PGRAPH_PRI_MME_SHADOW_RAM_DATA", 0)
}

func (u *pgraphUnit) reset() {}

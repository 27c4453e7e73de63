package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Bits of NV_PGRAPH_INTR.
const (
	GraphIntrIllegalMthd  = 1 << 4
	GraphIntrIllegalClass = 1 << 5
	GraphIntrDataError    = 1 << 20 // reason in NV_PGRAPH_DATA_ERROR
	GraphIntrTrap         = 1 << 21 // a unit of NV_PGRAPH_TRAP has a reason
)

// pgraph is what the host sees of the graphics engine: interrupts, the trapped
// method, idle status, and the port that initialises the pipeline's own state.
var pgraph = mmio.Block{
	Name:   "PGRAPH",
	Source: "envytools rnndb/graph/gf100_pgraph/pgraph.xml",
	Regs: []mmio.Reg{
		stub("NV_PGRAPH_UNK054", 0x400054),
		stub("NV_PGRAPH_UNK080", 0x400080),
		stubs("NV_PGRAPH_UNK088", 0x400088, 3, 4),
		{Name: "NV_PGRAPH_INTR", Offset: 0x400100, Access: mmio.W1C},
		{Name: "NV_PGRAPH_TRAP", Offset: 0x400108, Access: mmio.W1C},
		{Name: "NV_PGRAPH_DATA_ERROR", Offset: 0x400110, Access: mmio.RO},
		{Name: "NV_PGRAPH_TRAP_GPCS", Offset: 0x400118, Access: mmio.W1C},
		{Name: "NV_PGRAPH_TRAP_ROPS", Offset: 0x40011c, Access: mmio.W1C},
		{Name: "NV_PGRAPH_INTR_NRHOST", Offset: 0x400120, Access: mmio.W1C},
		stub("NV_PGRAPH_INTR_EN_NRHOST", 0x400124),
		stub("NV_PGRAPH_TRAP_GPCS_EN", 0x400130),
		stub("NV_PGRAPH_TRAP_ROPS_EN", 0x400134),
		stub("NV_PGRAPH_TRAP_EN", 0x400138),
		{Name: "NV_PGRAPH_INTR_EN", Offset: 0x40013c},
		stub("NV_PGRAPH_INTR_DISPATCH_CTXCTL_DOWN", 0x400140),
		{Name: "NV_PGRAPH_INTR_CTXCTL_DOWN", Offset: 0x400144, Access: mmio.W1C},
		stub("NV_PGRAPH_INTR_EN_CTXCTL_DOWN", 0x400148),
		stub("NV_PGRAPH_ICMD_CMD", 0x400200),
		stub("NV_PGRAPH_ICMD_DATA", 0x400204),
		stub("NV_PGRAPH_ICMD_UNK0208", 0x400208),
		stub("NV_PGRAPH_UNK20C", 0x40020c),
		{Name: "NV_PGRAPH_FIFO_CONTROL", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x400500, Effect: "bit 0 lets PGRAPH go on with its channel's commands"},
		{Name: "NV_PGRAPH_FIFO_STATUS", Offset: 0x400504, Access: mmio.RO, Reset: 1},
		// PGRAPH never shows as busy: work for the host completes immediately, and the host
		// polls PFIFO for a channel's work.
		{Name: "NV_PGRAPH_GPC_STATUS", Offset: 0x400604, Access: mmio.RO},
		{Name: "NV_PGRAPH_ROP_STATUS", Offset: 0x400608, Access: mmio.RO},
		{Name: "NV_PGRAPH_FE_STATUS", Offset: 0x40060c, Access: mmio.RO},
		{Name: "NV_PGRAPH_STATUS", Offset: 0x400700, Access: mmio.RO},
		{Name: "NV_PGRAPH_TRAPPED_ADDR", Offset: 0x400704, Access: mmio.RO},
		{Name: "NV_PGRAPH_TRAPPED_DATA_LOW", Offset: 0x400708, Access: mmio.RO},
		{Name: "NV_PGRAPH_TRAPPED_DATA_HIGH", Offset: 0x40070c, Access: mmio.RO},
		{Name: "NV_PGRAPH_DISPATCH_PWR_MODE", Offset: 0x404170, Fields: []mmio.Field{
			// Bit 4 requests the mode in the bits below; it completes immediately.
			{Name: "REQ", Hi: 4, Lo: 4, Access: mmio.RO},
		}},
		{Name: "NV_PGRAPH_MACRO_MCACHE_CTRL", Offset: 0x404488,
			Effect: "bit 31 gives the method in bits 30:16 of the class in bits 15:0 the data of 40448c"},
		{Name: "NV_PGRAPH_MACRO_MCACHE_DATA", Offset: 0x40448c},
	},
}

const (
	methodTrigger = 1 << 31 // MCACHE_CTRL: write the method
	fifoPull      = 1 << 0  // FIFO_CONTROL: take commands
)

// GraphTrap is a reason for PGRAPH to stop and ask the host.
type GraphTrap struct {
	Intr       uint32 // bits of NV_PGRAPH_INTR
	Inst       uint64 // VRAM address of the channel's instance block
	Subchannel uint8
	Class      uint16
	Method     uint32 // byte offset
	Data       uint32
	DataError  uint32  // NV_PGRAPH_DATA_ERROR, if Intr has GraphIntrDataError
	MP         MPError // if Intr has GraphIntrTrap
}

type pgraphUnit struct {
	face   *Face
	resume func()

	intr, code, addr, dataLow, dataHigh mmio.Cell
	method                              mmio.Cell
	classes                             [8]mmio.Cell
	mp                                  mpTrap
}

func (u *pgraphUnit) bind(b *mmio.Bindings) {
	u.mp.bind(b)
	b.OnWrite("NV_PGRAPH_MACRO_MCACHE_CTRL", func(_ int, w mmio.Write) {
		if w.New&methodTrigger != 0 && u.face.onMethod != nil {
			u.face.onMethod(w.New&0xffff, w.New>>16&0x7fff<<2, u.method.Get())
		}
	})
	b.OnWrite("NV_PGRAPH_FIFO_CONTROL", func(_ int, w mmio.Write) {
		if w.New&fifoPull != 0 && u.intr.Get() == 0 && u.resume != nil {
			u.resume()
		}
	})
}

func (u *pgraphUnit) attach(s *mmio.Space) {
	u.intr, u.code = s.Cell("NV_PGRAPH_INTR", 0), s.Cell("NV_PGRAPH_DATA_ERROR", 0)
	u.addr = s.Cell("NV_PGRAPH_TRAPPED_ADDR", 0)
	u.dataLow, u.dataHigh = s.Cell("NV_PGRAPH_TRAPPED_DATA_LOW", 0), s.Cell("NV_PGRAPH_TRAPPED_DATA_HIGH", 0)
	u.method = s.Cell("NV_PGRAPH_MACRO_MCACHE_DATA", 0)
	u.mp.attach(s)
	for i := range u.classes {
		u.classes[i] = s.Cell("NV_PGRAPH_DISPATCH_CTX_CACHE", i)
	}
}

// stop is a reset by PMC: nothing is pending.
func (u *pgraphUnit) stop() {
	u.intr.Put(0)
	u.mp.stop()
}

func (u *pgraphUnit) raise(t GraphTrap) {
	sub := uint32(t.Subchannel & 7)
	u.addr.Put(sub<<16 | t.Method&0x3ffc)
	u.dataLow.Put(t.Data)
	u.dataHigh.Put(0)
	u.code.Put(t.DataError)
	u.classes[sub].Put(uint32(t.Class))
	if t.Intr&GraphIntrTrap != 0 {
		u.mp.raise(t.MP)
	}
	u.intr.Set(t.Intr)
}

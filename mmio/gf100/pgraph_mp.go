package gf100

import "github.com/umbra-gpu/umbra/mmio"

// MPError is what a shader processor reports of a program.
// Source: envytools rnndb/graph/gf100_pgraph/tpc.xml.
type MPError struct {
	Warp   uint32 // NV_PGRAPH_GPC_TPC_MP_TRAP_WARP_ERROR
	Global uint32 // bits of NV_PGRAPH_GPC_TPC_MP_TRAP_GLOBAL_ERROR
}

// Errors of a warp, by rnndb's names or, where it has none, by those of nouveau's messages.
const (
	MPStackMismatch  = 0x1
	MPMisalignedPC   = 0x5
	MPPCOverflow     = 0x6
	MPMisalignedGPR  = 0x8
	MPInvalidOpcode  = 0x9
	MPInvalidConst   = 0xc
	MPGPROutOfBounds = 0xd
	MPMemOutOfBounds = 0xe
	MPMisalignedAddr = 0xf
	MPInvalidParam   = 0x11
)

// Errors of a processor.
const (
	MPOutOfStackSpace = 1 << 3
	MPTimeout         = 1 << 31
)

// Bits that lead to a processor's error: of NV_PGRAPH_TRAP, of NV_PGRAPH_PRI_GPC_TRAP for the
// first TPC, and of NV_PGRAPH_GPC_TPC_MASTER_TRAP.
const (
	GraphTrapGPCs = 1 << 24
	GPCTrapTPC    = 1 << 16
	TPCTrapMP     = 1 << 1
)

// mpTrap is the path from a processor's error to PGRAPH's interrupt.
type mpTrap struct {
	units, gpcs, gpc, warp, global mmio.Cell
}

func (m *mpTrap) bind(b *mmio.Bindings) {
	b.OnRead("NV_PGRAPH_GPC_TPC_MASTER_TRAP", func(i int, _ uint32) uint32 {
		if i == 0 && m.warp.Get()|m.global.Get() != 0 {
			return TPCTrapMP
		}
		return 0
	})
}

func (m *mpTrap) attach(s *mmio.Space) {
	m.units, m.gpcs = s.Cell("NV_PGRAPH_TRAP", 0), s.Cell("NV_PGRAPH_TRAP_GPCS", 0)
	m.gpc = s.Cell("NV_PGRAPH_PRI_GPC_TRAP", 0)
	m.warp, m.global = s.Cell("NV_PGRAPH_GPC_TPC_MP_TRAP_WARP_ERROR", 0), s.Cell("NV_PGRAPH_GPC_TPC_MP_TRAP_GLOBAL_ERROR", 0)
}

func (m *mpTrap) stop() {
	for _, c := range []mmio.Cell{m.units, m.gpcs, m.gpc, m.warp, m.global} {
		c.Put(0)
	}
}

// raise shows an error of the first TPC of the first GPC, whichever ran the program.
func (m *mpTrap) raise(e MPError) {
	m.warp.Put(e.Warp)
	m.global.Set(e.Global)
	m.gpc.Set(GPCTrapTPC)
	m.gpcs.Set(1)
	m.units.Set(GraphTrapGPCs)
}

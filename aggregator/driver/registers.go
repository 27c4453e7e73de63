package driver

import (
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// rows are the chip's registers by name.
var rows = rowsByName(gf100.Blocks())

func rowsByName(blocks []mmio.Block) map[string]mmio.Reg {
	m := make(map[string]mmio.Reg)
	for _, b := range blocks {
		for _, r := range b.Regs {
			m[r.Name] = r
		}
	}
	return m
}

// row returns a register's row. It panics at program start if there is none.
func row(name string) mmio.Reg {
	r, ok := rows[name]
	if !ok {
		panic("driver: the chip has no register " + name)
	}
	return r
}

// at returns the offset of a register, or of the first of an array; stride returns the
// distance between the elements of an array.
func at(name string) uint32     { return row(name).Offset }
func stride(name string) uint32 { return row(name).Rep[0].Stride }

// Registers that the driver uses.
var (
	regPMCIntr      = at("NV_PMC_INTR")
	regPMCIntrEn    = at("NV_PMC_INTR_EN")
	regPMCEnable    = at("NV_PMC_ENABLE")
	regPMCIntrMask0 = at("NV_PMC_INTR_MASK")
	regTimeLo       = at("NV_PTIMER_TIME_0")
	regTimeHi       = at("NV_PTIMER_TIME_1")

	regBAR1Block     = at("NV_PBUS_BAR1_BLOCK")
	regMMUCtrl       = at("NV_PFB_PRI_MMU_CTRL")
	regInvalidatePDB = at("NV_PFB_PRI_MMU_INVALIDATE_PDB")
	regInvalidate    = at("NV_PFB_PRI_MMU_INVALIDATE")

	regFIFOIntr       = at("NV_PFIFO_INTR_0")
	regFIFOIntrEn     = at("NV_PFIFO_INTR_EN_0")
	regFIFOEnable     = at("NV_PFIFO_ENABLE")
	regUSERDBase      = at("NV_PFIFO_USERD_BASE")
	regRunlistBase    = at("NV_PFIFO_RUNLIST_BASE")
	regRunlist        = at("NV_PFIFO_RUNLIST")
	regEngRunlist     = at("NV_PFIFO_ENG_RUNLIST")
	regRunlistIntr    = at("NV_PFIFO_INTR_RUNLIST")
	regFaultID        = at("NV_PFIFO_INTR_MMU_FAULT_ID")
	regPBDMAID        = at("NV_PFIFO_INTR_PBDMA_ID")
	regEngEvent       = at("NV_PFIFO_ENG_EVENT")
	regEngEventStatus = at("NV_PFIFO_ENG_EVENT_STATUS") // + engine * 4
	regEngEventEn     = at("NV_PFIFO_ENG_EVENT_EN")
	regPreempt        = at("NV_PFIFO_PREEMPT")
	regEngineStatus   = at("NV_PFIFO_ENGINE_STATUS") // + engine * 4

	regFault     = at("NV_PFIFO_MMU_FAULT_INST") // + unit * strideFault, as the next ones
	regFaultLo   = at("NV_PFIFO_MMU_FAULT_VA_LO")
	regFaultHi   = at("NV_PFIFO_MMU_FAULT_VA_HI")
	regFaultInfo = at("NV_PFIFO_MMU_FAULT_INFO")
	strideFault  = stride("NV_PFIFO_MMU_FAULT_INST")

	regChannelInst = at("NV_PCCSR_CHANNEL_INST") // + channel * strideChannel, as the next one
	regChannel     = at("NV_PCCSR_CHANNEL")
	strideChannel  = stride("NV_PCCSR_CHANNEL")

	regPBDMAMethod  = at("NV_PPBDMA_METHOD0") // + unit * stridePBDMA, as the next ones
	regPBDMAData    = at("NV_PPBDMA_DATA0")
	regPBDMAIntr    = at("NV_PPBDMA_INTR_0")
	regPBDMAIntrEn  = at("NV_PPBDMA_INTR_EN_0")
	regPBDMAChannel = at("NV_PPBDMA_CHANNEL")
	stridePBDMA     = stride("NV_PPBDMA_METHOD0")

	regCopyClear   = at("NV_PCE_FALCON_IRQSCLR") // + engine * strideCopy, as the next ones
	regCopyMask    = at("NV_PCE_FALCON_IRQMSET")
	regCopyDest    = at("NV_PCE_FALCON_IRQDEST")
	regCopyMailbox = at("NV_PCE_FALCON_MAILBOX") // the second one + 4
	regCopyContext = at("NV_PCE_FALCON_CURCTX")
	strideCopy     = stride("NV_PCE_FALCON_CURCTX")

	regGraphIntr    = at("NV_PGRAPH_INTR")
	regGraphIntrEn  = at("NV_PGRAPH_INTR_EN")
	regGraphTrap    = at("NV_PGRAPH_TRAP")
	regTrapGPCs     = at("NV_PGRAPH_TRAP_GPCS")
	regGPCTrap      = at("NV_PGRAPH_PRI_GPC_TRAP")        // + GPC * strideGPC
	regTPCTrap      = at("NV_PGRAPH_GPC_TPC_MASTER_TRAP") // + TPC * strideTPC, as the next ones
	regWarpError    = at("NV_PGRAPH_GPC_TPC_MP_TRAP_WARP_ERROR")
	regGlobalError  = at("NV_PGRAPH_GPC_TPC_MP_TRAP_GLOBAL_ERROR")
	strideGPC       = stride("NV_PGRAPH_PRI_GPC_TRAP")
	strideTPC       = row("NV_PGRAPH_GPC_TPC_MASTER_TRAP").Rep[1].Stride
	regGraphError   = at("NV_PGRAPH_DATA_ERROR")
	regGraphFIFO    = at("NV_PGRAPH_FIFO_CONTROL")
	regGraphAddr    = at("NV_PGRAPH_TRAPPED_ADDR")
	regGraphData    = at("NV_PGRAPH_TRAPPED_DATA_LOW")
	regGraphClass   = at("NV_PGRAPH_DISPATCH_CTX_CACHE") // + subchannel * 4
	regGraphContext = at("NV_PGRAPH_PRI_FECS_CURRENT_CTX")
)

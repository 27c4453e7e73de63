package guest

// BAR0 offsets that the driver uses, from envytools' rnndb and NVIDIA's manuals.
// They are written down here a second time on purpose: a driver that took them
// from the device's own tables would not notice a wrong one.
const (
	pmcBoot0      = 0x000000
	pmcIntr       = 0x000100 // two leaves, 4 bytes apart
	pmcIntrEn     = 0x000140 // two leaves
	pmcEnable     = 0x000200
	pmcPBDMAs     = 0x000204
	pmcIntrMask   = 0x000640 // two leaves
	pbusWindow    = 0x001700
	pbusBAR1Block = 0x001704
	pbusBAR3Block = 0x001714

	pfifoIntr         = 0x002100
	pfifoIntrEn       = 0x002140
	pfifoEnable       = 0x002200
	pfifoPBDMAMap     = 0x002208
	pfifoUSERDBase    = 0x002254
	pfifoRunlistBase  = 0x002270
	pfifoRunlist      = 0x002274
	pfifoRunlistState = 0x00227c
	pfifoFaultID      = 0x00259c
	pfifoPBDMAID      = 0x0025a0
	pfifoEngEvent     = 0x0025a4
	pfifoEngStatus    = 0x0025a8 // + 4 per engine
	pfifoEngEventEn   = 0x002628
	pfifoErrorClear   = 0x00262c
	pfifoSchedDisable = 0x002630
	pfifoPreempt      = 0x002634
	pfifoFault        = 0x002800 // + 0x10 per unit: instance, VA low, VA high, info
	pfifoRunlistIntr  = 0x002a00
	pccsrInst         = 0x003000 // + 8 per channel
	pccsrChannel      = 0x003004 // + 8 per channel

	pciMSIRearm    = 0x088704
	pibusPartCount = 0x022438
	pibusPartMask  = 0x022554
	pbdmaMethod    = 0x0400c0 // + 0x2000 per PBDMA
	pbdmaData      = 0x0400c4
	pbdmaIntr      = 0x040108
	pbdmaIntrEn    = 0x04010c
	pbdmaChannel   = 0x040120
	pbdmaIntrStall = 0x04013c
	uflushFlush    = 0x070000
	mmuCtrl        = 0x100c80
	mmuPDB         = 0x100cb8
	mmuInvalidate  = 0x100cbc
	partMemory     = 0x11020c // + 0x1000 per partition, in MiB

	pramin     = 0x700000
	praminSize = 0x100000
)

const (
	engStride   = 4
	faultStride = 0x10
	chanStride  = 8
	pbdmaStride = 0x2000
	partStride  = 0x1000
)

// Bits of NV_PFIFO_INTR_0.
const (
	intrFault   = 1 << 28
	intrPBDMA   = 1 << 29
	intrRunlist = 1 << 30
	intrEngine  = 1 << 31
)

const (
	blockOn        = 1 << 31    // NV_PBUS_BAR1_BLOCK, NV_PBUS_BAR2_BLOCK
	chanBind       = 3 << 30    // NV_PCCSR_CHANNEL_INST
	chanOn         = 0x001f0001 // NV_PCCSR_CHANNEL
	chanEnable     = 1 << 0
	runlistCommit  = 0x01f00000
	runlistBusy    = 1 << 20
	preemptBusy    = 1 << 20
	pbdmaSkip      = 0x80600008 // NV_PPBDMA_METHOD0: the held method is done
	flushStart     = 1
	flushBusy      = 2
	mmuSpace       = 0xff << 16
	mmuDone        = 1 << 15
	invalidateAll  = 1 << 31 // the trigger; bit 0 all pages, bit 2 hub only
	userdValid     = 1 << 28
	intrMaskOfDrv  = 0x5b36b161 // what nouveau lets through
	intrPFIFOLeaf  = 1 << 8
	chipGF100      = 0x0c0
	partitionLimit = 16
)

// PCI configuration space.
const (
	pciCommand   = 0x04
	pciMemory    = 1 << 1
	pciMaster    = 1 << 2
	pciCapList   = 0x34
	pciCapMSI    = 0x05
	msiControl   = 2
	msiAddressLo = 4
	msiAddressHi = 8
	msiData      = 12
	msiEnable    = 1
)

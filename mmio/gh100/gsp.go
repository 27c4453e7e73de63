package gh100

import "github.com/umbra-gpu/umbra/mmio"

// Bits of GSP's registers.
const (
	gspIntrMessage = 1 << 6  // of IRQSTAT: a message of GSP's own accord
	gspLockdown    = 1 << 13 // of HWCFG2: GSP may not be looked into yet
	gspHalted      = 1 << 4  // of CPUCTL
	gspActive      = 1 << 7

	// gspUnloaded in mailbox 0 says that GSP has done what it was asked to before it halts.
	gspUnloaded = 1 << 31
	// gspFailed there is what a driver reports as a failed boot: neither zero nor an address.
	gspFailed = 0x1f
)

var gspBlock = mmio.Block{
	Name:   "PGSP",
	Source: "NVIDIA dev_gsp.h, dev_falcon_v4.h, dev_riscv_pri.h",
	Regs: []mmio.Reg{
		{Name: "NV_PGSP_FALCON_IRQSCLR", Offset: 0x110004, Access: mmio.WO, Effect: "bits that are one acknowledge GSP's interrupts"},
		{Name: "NV_PGSP_FALCON_IRQSTAT", Offset: 0x110008, Access: mmio.RO},
		{Name: "NV_PGSP_FALCON_MAILBOX0", Offset: 0x110040},
		{Name: "NV_PGSP_FALCON_MAILBOX1", Offset: 0x110044},
		{Name: "NV_PGSP_FALCON_OS", Offset: 0x110080, Stub: true},
		{Name: "NV_PGSP_FALCON_HWCFG2", Offset: 0x1100f4, Reset: gspLockdown, Access: mmio.RO},
		{Name: "NV_PGSP_FALCON_INTR_RETRIGGER", Offset: 0x1103e8, Access: mmio.WO, Effect: "bit 0 repeats the interrupt if GSP still has one"},
		{Name: "NV_PGSP_QUEUE_HEAD", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x110c00, Effect: "GSP looks at its command queue"},
		{Name: "NV_PRISCV_RISCV_CPUCTL", Offset: 0x111388, Reset: gspHalted, Access: mmio.RO},
		{Name: "NV_PRISCV_RISCV_IRQMASK", Offset: 0x111528, Reset: gspIntrMessage, Access: mmio.RO},
	},
}

// gsp is GSP's processor as its registers show it. The rows have all of its state.
type gsp struct {
	tree                       *tree
	irqs, mailbox, hwcfg2, cpu mmio.Cell
}

func (g *gsp) bind(b *mmio.Bindings) {
	b.OnWrite("NV_PGSP_FALCON_IRQSCLR", func(_ int, w mmio.Write) { g.irqs.Put(g.irqs.Get() &^ w.Data) })
	b.OnWrite("NV_PGSP_FALCON_INTR_RETRIGGER", func(_ int, w mmio.Write) {
		if w.Data&1 != 0 && g.irqs.Get() != 0 {
			g.tree.raise(VectorGSP)
		}
	})
}

func (g *gsp) attach(s *mmio.Space) {
	g.irqs, g.mailbox = s.Cell("NV_PGSP_FALCON_IRQSTAT", 0), s.Cell("NV_PGSP_FALCON_MAILBOX0", 0)
	g.hwcfg2, g.cpu = s.Cell("NV_PGSP_FALCON_HWCFG2", 0), s.Cell("NV_PRISCV_RISCV_CPUCTL", 0)
}

// start lets GSP run.
func (g *gsp) start() {
	g.mailbox.Put(0)
	g.hwcfg2.Put(0)
	g.cpu.Put(gspActive)
}

// halt ends it, and says why.
func (g *gsp) halt(why uint32) {
	g.mailbox.Put(why)
	g.cpu.Put(gspHalted)
}

// raise announces a message of GSP's own accord.
func (g *gsp) raise() {
	g.irqs.Put(g.irqs.Get() | gspIntrMessage)
	g.tree.raise(VectorGSP)
}

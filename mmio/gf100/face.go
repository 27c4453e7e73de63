package gf100

import (
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/pci"
)

// SpaceSize is the size of BAR0 in bytes.
const SpaceSize = 16 << 20

// MaxVRAM is the most memory of a board, in bytes: the Quadro 6000's.
const MaxVRAM = 6 << 30

// FaceConfig chooses the board. The zero value of a field is its default.
type FaceConfig struct {
	// VRAM is the size of the card's memory in bytes, a multiple of 1 MiB from
	// 64 MiB to 6 GiB; default 512 MiB. It is spread evenly over as many
	// framebuffer partitions as divide it.
	VRAM uint64
	// TPCs is the number of TPCs in each GPC; default 4, 4, 3, 3.
	TPCs []int
	// ROM is what the PROM window shows; beyond it, ones.
	ROM []byte
	// Config is the configuration space that BAR0 shows at 088000; default one
	// with no options.
	Config *pci.ConfigSpace
	// Clock counts nanoseconds and is monotonic; default a clock that starts with the face.
	Clock func() uint64
	// Temperature returns the sensor's reading in degrees Celsius; default 45.
	Temperature func() int
}

// goodTPCs are the sums of TPCs that nouveau has a table for.
var goodTPCs = []int{1, 2, 4, 7, 8, 11, 14, 15, 16}

func (c *FaceConfig) complete() error {
	if c.VRAM == 0 {
		c.VRAM = 512 << 20
	}
	if c.VRAM%(1<<20) != 0 || c.VRAM < 64<<20 || c.VRAM > MaxVRAM {
		return fmt.Errorf("gf100: VRAM of %d bytes: need a multiple of 1 MiB, from 64 MiB to 6 GiB", c.VRAM)
	}
	if c.TPCs == nil {
		c.TPCs = []int{4, 4, 3, 3}
	}
	if len(c.TPCs) < 1 || len(c.TPCs) > MaxGPCs {
		return fmt.Errorf("gf100: %d GPCs: need 1 to %d", len(c.TPCs), MaxGPCs)
	}
	sum := 0
	for g, n := range c.TPCs {
		if n < 1 || n > MaxTPCs {
			return fmt.Errorf("gf100: GPC %d has %d TPCs: need 1 to %d", g, n, MaxTPCs)
		}
		sum += n
	}
	if !slices.Contains(goodTPCs, sum) {
		return fmt.Errorf("gf100: %d TPCs %v: drivers know no chip with that many; their sum must be one of %v", sum, c.TPCs, goodTPCs)
	}
	if len(c.ROM) > promSize {
		return fmt.Errorf("gf100: ROM of %d bytes: the window holds %d", len(c.ROM), promSize)
	}
	if c.Config == nil {
		cs, err := NewConfigSpace(pci.Options{})
		if err != nil {
			return err
		}
		c.Config = cs
	}
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() uint64 { return uint64(time.Since(start)) }
	}
	if c.Temperature == nil {
		c.Temperature = func() int { return 45 }
	}
	return nil
}

// partitions returns over how many framebuffer partitions the memory is spread,
// and the MiB in each.
func partitions(vram uint64) (n int, mib uint32) {
	total := vram >> 20
	for n = MaxFBPs; total%uint64(n) != 0; n-- {
	}
	return n, uint32(total / uint64(n))
}

// Blocks returns all rows of the chip. The effects of PFIFO, PCCSR, PPBDMA and
// PMMU are bound by the owner, all others by Face.Bind.
func Blocks() []mmio.Block {
	return []mmio.Block{
		pmc, pbus, pfifo, pccsr, ptimerBlock, pnvio, ptherm, pfuse, punits, ppbdma, ppeephole,
		pltc, pvdec, pmmu, pbfb, pstraps, pce, ppwr, pibus, pclock,
		pgraph, pgraphDispatch, pgraphMacro, pgraphM2MF, pgraphHub, pgraphCCACHE, pgraphROPBroadcast, pfecs,
		pgraphROP, pgraphGPCs, pgraphPPCs, pgpccs, pgraphGPC, pgraphTPC,
		prmio, pdisplay,
	}
}

// Where the PRAMIN window lies in BAR0.
const (
	PRAMINBase = 0x700000
	PRAMINSize = 0x100000
)

// InPRAMIN reports whether an access of n bytes stays in the PRAMIN window: it then
// moves memory, and no register.
func InPRAMIN(off uint64, n int) bool {
	return off >= PRAMINBase && off+uint64(n) <= PRAMINBase+PRAMINSize
}

// Apertures returns the windows in BAR0. PRAMIN's is bound by the owner.
func Apertures() []mmio.Aperture {
	return []mmio.Aperture{
		{Name: "PPCI", Offset: 0x88000, Size: pci.ConfigSize, Effect: "the function's own configuration space"},
		{Name: "PROM", Offset: 0x300000, Size: promSize, Effect: "the board's ROM"},
		{Name: "PRAMIN", Offset: PRAMINBase, Size: PRAMINSize, Policy: mmio.Translate, Effect: "1 MiB of memory, placed by 001700"},
	}
}

type unit interface {
	bind(b *mmio.Bindings)
	attach(s *mmio.Space)
}

// Face implements the units with private state: everything in BAR0 except channels, address
// translation and memory. Its methods and the effects it binds run under the lock of the
// space's owner.
type Face struct {
	cfg   FaceConfig
	fbps  int    // framebuffer partitions
	mib   uint32 // of memory in each
	timer ptimer
	tree  tree
	fecs  *fecsUnit
	graph *pgraphUnit
	pmu   *pmuUnit
	ces   *pceUnit
	video []*falcon
	vga   *prmioUnit
	units []unit

	resets []unitReset

	onMethod func(class, method, data uint32)
	onReset  func(enableBits uint32)
}

// unitReset is what a falling bit of NV_PMC_ENABLE does to a unit of this
// package.
type unitReset struct {
	bit   uint32
	reset func()
}

// NewFace makes the units of one chip.
func NewFace(cfg FaceConfig) (*Face, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	f := &Face{cfg: cfg}
	f.fbps, f.mib = partitions(cfg.VRAM)
	f.timer.clock = cfg.Clock
	f.fecs = newFECS(len(cfg.TPCs))
	f.graph = &pgraphUnit{face: f}
	f.pmu, f.ces, f.vga = newPMU(), newPCE(), &prmioUnit{}
	for _, v := range videoViews {
		f.video = append(f.video, newFalcon(v.spec))
	}
	f.units = []unit{&f.timer, f.pmu, f.ces, f.fecs, f.graph, f.vga}
	f.resets = []unitReset{
		{enablePCE0, f.ces.falcons[0].reset}, {enablePCE1, f.ces.falcons[1].reset},
		{enablePGRAPH, f.fecs.stop}, {enablePGRAPH, f.graph.stop}, {enablePMU, f.pmu.stop},
	}
	f.tree.falcons = []falconSource{
		{intrPMU, f.pmu.falcon}, {intrCE0, f.ces.falcons[0]}, {intrCE1, f.ces.falcons[1]},
	}
	return f, nil
}

// Bind binds the effects of every row that this package answers for, and the
// windows PROM and PPCI.
func (f *Face) Bind(b *mmio.Bindings) {
	f.tree.bind(b, f)
	f.bindBoard(b)
	for _, u := range f.units {
		u.bind(b)
	}
	for i := range videoViews {
		videoViews[i].bind(b, f.video[i:i+1])
	}
	b.OnWrite("NV_PMC_ENABLE", func(_ int, w mmio.Write) { f.disable(w.Old &^ w.New) })
	b.OnWindow("PROM", promWindow(f.cfg.ROM))
	b.OnWindow("PPCI", mmio.Window{Read: f.cfg.Config.Read, Write: f.cfg.Config.Write})
}

// Attach resolves the registers of the built space. It must be called once,
// after mmio.New and before the first access.
func (f *Face) Attach(s *mmio.Space) {
	f.tree.attach(s)
	for _, u := range f.units {
		u.attach(s)
	}
	f.Reset()
}

// Reset puts the units in their state after power-on. The owner resets the space
// first. The configuration space is not touched: PCI resets it on its own terms.
func (f *Face) Reset() {
	f.tree.reset()
	f.timer.reset()
	f.vga.crtc = [256]byte{}
	for _, c := range f.falcons() {
		c.power()
	}
}

func (f *Face) disable(bits uint32) {
	for _, r := range f.resets {
		if bits&r.bit != 0 {
			r.reset()
		}
	}
	if bits != 0 && f.onReset != nil {
		f.onReset(bits)
	}
}

// Settle recomputes the interrupt tree, with PFIFO's own level. level is the line towards the host;
// edge means that a message is due: the line rose since the last call, or the driver re-enabled
// interrupts with something still pending.
func (f *Face) Settle(fifo bool) (level, edge bool) {
	f.tree.fifo = fifo
	f.timer.tick()
	return f.tree.settle()
}

// NextAlarm returns when PTIMER's alarm is due, in units of FaceConfig.Clock,
// if it is armed and enabled. The owner sleeps until then and calls Settle.
func (f *Face) NextAlarm() (at uint64, armed bool) { return f.timer.next() }

// OnMethod registers a callback for the methods that a driver sends to PGRAPH through
// its registers while it builds the first context: they are the classes'
// default state. method is a byte offset.
func (f *Face) OnMethod(fn func(class, method, data uint32)) { f.onMethod = fn }

// OnUnitReset registers a callback for bits of NV_PMC_ENABLE that became zero: the
// driver resets those units.
func (f *Face) OnUnitReset(fn func(enableBits uint32)) { f.onReset = fn }

// RaiseGraph makes PGRAPH report a trap. The driver reads the cause and then lets
// PGRAPH continue.
func (f *Face) RaiseGraph(t GraphTrap) {
	f.fecs.cur.Put(ctxValid | uint32(t.Inst>>12)&ctxInst)
	f.graph.raise(t)
}

// OnGraphResume registers a callback for the driver having handled all traps, which
// lets PGRAPH continue.
func (f *Face) OnGraphResume(fn func()) { f.graph.resume = fn }

// RaiseCopy makes a copy engine report a method that it refused.
func (f *Face) RaiseCopy(t CopyTrap) { f.ces.raise(t) }

// OnCopyResume registers a callback for the driver having acknowledged a copy
// engine's report, which lets that engine continue.
func (f *Face) OnCopyResume(fn func(engine int)) { f.ces.resume = fn }

// promSize is the window on the board's ROM.
const promSize = 0x100000

// promWindow shows the ROM, padded with ones. Writes have no effect, as on a board whose
// ROM is not in programming mode.
func promWindow(rom []byte) mmio.Window {
	return mmio.Window{
		Read: func(off uint32, p []byte) {
			n := 0
			if int(off) < len(rom) {
				n = copy(p, rom[off:])
			}
			for i := n; i < len(p); i++ {
				p[i] = 0xff
			}
		},
		Write: func(uint32, []byte) {},
	}
}

package gh100

import (
	"cmp"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/mmio/pci"
)

// Config describes a virtual GPU.
type Config struct {
	PCI     pci.Options
	TPCs    []int // of each cluster; nil means those of an H100 PCIe
	Objects int   // that the guest's driver may allocate at GSP; 0 means 8192
	Culling gsp.Culling
	// Log takes a line for the operator. It must not block and must not call back; nil drops it.
	Log func(format string, args ...any)
}

// VGPU is a virtual GPU. All methods may be called from any goroutine.
type VGPU struct {
	devmodel.Function
	card Card
	log  func(format string, args ...any)

	face      *gh100.Face
	gspConfig gsp.Config
	gsp       *gsp.GSP
	gspHost   gspHost
	resetting bool        // the card is, without mu
	logged    [Rules]bool // broken rules

	window, lowerPDB, upperPDB mmio.Cell
}

// New returns a virtual GPU with vram bytes of memory, GSP's part included, see [gsp.CheckVRAM].
// [VGPU.Connect] sets its card before the first access, because the card needs the VGPU as the receiver
// of its events.
func New(cfg Config, vram uint64) (*VGPU, error) {
	if cfg.TPCs == nil {
		cfg.TPCs = []int{7, 7, 7, 7, 7, 7, 7, 8}
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	v := &VGPU{card: noCard{}, log: cfg.Log}
	v.Chip = devmodel.Chip{
		InPRAMIN: gh100.InPRAMIN,
		ReadBAR:  func(bar int, off uint64, p []byte) { v.card.ReadBAR(bar, off, p) },
		WriteBAR: func(bar int, off uint64, p []byte) { v.card.WriteBAR(bar, off, p) },
		Settle:   v.settle,
	}
	v.gspHost = gspHost{Card: v.card, v: v}
	v.gspConfig = gsp.Config{VRAM: vram, TPCs: cfg.TPCs, Objects: cmp.Or(cfg.Objects, 8192), Culling: cfg.Culling, Log: cfg.Log}
	var err error
	if v.gsp, err = gsp.New(v.gspConfig, &v.gspHost, &v.gspHost, nil); err != nil {
		return nil, err
	}
	if v.PCI, err = gh100.NewConfigSpace(cfg.PCI); err != nil {
		return nil, err
	}
	if v.face, err = gh100.NewFace(gh100.FaceConfig{VRAM: vram, Clock: v.clock, Boot: v.boot}); err != nil {
		return nil, err
	}
	var b mmio.Bindings
	v.face.Bind(&b)
	v.bind(&b)
	if v.Space, err = mmio.New(gh100.SpaceSize, gh100.Blocks(), gh100.Apertures(), &b); err != nil {
		return nil, fmt.Errorf("devmodel/gh100: %w", err)
	}
	v.Space.Restrict()
	v.face.Attach(v.Space)
	v.window = v.Space.Cell("NV_XAL_EP_BAR0_WINDOW", 0)
	v.lowerPDB = v.Space.Cell("NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB", 0)
	v.upperPDB = v.Space.Cell("NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB", 0)
	return v, nil
}

// noCard replaces the card until Connect: only its Time may be called.
type noCard struct{ Card }

func (noCard) Time() uint64 { return 0 }

// Connect sets the card behind the virtual GPU. It is called once, before the first access.
func (v *VGPU) Connect(c Card) {
	v.card, v.Windows, v.gspHost.Card = c, c, c
	c.PointPRAMIN(v.pramin())
}

// Close ends the use of the virtual GPU. The card belongs to the caller.
func (v *VGPU) Close() { v.AttachHost(nil) }

// clock is the timer's source in nanoseconds: the card's, because the card stamps semaphores with it.
func (v *VGPU) clock() uint64 { return v.card.Time() }

// Reset is a function-level reset. A machine that wakes up resets its devices: if its driver has suspended
// GSP, the memory and what GSP knows stay. Without a host the machine has gone, and nothing stays.
func (v *VGPU) Reset() error {
	v.Mu.Lock()
	keep := v.gsp.Suspended && v.Attached()
	if !keep {
		v.gsp.Reset()
	}
	v.resetting = true
	v.Mu.Unlock()
	// The card may deliver events while its channels end, so the lock is released. The register reset
	// below removes their traces.
	err := v.card.Reset(keep)
	v.Mu.Lock()
	defer v.Mu.Unlock()
	v.resetting = false
	v.Space.Reset()
	v.face.Reset()
	v.PCI.Reset()
	v.card.PointPRAMIN(v.pramin())
	v.Settle()
	return err
}

// settle returns the state of the interrupt tree. GSP's events that waited for room may have it.
func (v *VGPU) settle() (level, edge bool) {
	v.gsp.Deliver()
	return v.face.Settle()
}

// ROM returns nil: drivers of the chip read no VBIOS.
func (v *VGPU) ROM() []byte { return nil }

package gh100

import (
	"fmt"

	"github.com/umbra-gpu/umbra/mmio"
)

// FaceConfig describes the board.
type FaceConfig struct {
	// VRAM is the size of the memory in bytes with the reserved end, a multiple of 1 MiB.
	VRAM uint64
	// Clock counts nanoseconds and is monotonic.
	Clock func() uint64
	// Boot starts GSP; params is the bus address of the driver's GSP_FMC_BOOT_PARAMS. It is called at
	// each boot, also after a suspend.
	Boot func(params uint64)
}

// Face implements the units with state of their own: FSP, GSP's processor, the interrupt tree and the
// timer. Its methods and the effects that it binds run under the lock of the space's owner.
type Face struct {
	cfg  FaceConfig
	tree tree
	gsp  gsp
	fsp  fsp
}

// NewFace makes the units of one chip.
func NewFace(cfg FaceConfig) (*Face, error) {
	if cfg.VRAM%(1<<20) != 0 || cfg.VRAM == 0 {
		return nil, fmt.Errorf("gh100: VRAM of %d bytes: need a multiple of 1 MiB", cfg.VRAM)
	}
	f := &Face{cfg: cfg}
	f.gsp.tree = &f.tree
	f.fsp.boot = func(params uint64) {
		f.gsp.start()
		cfg.Boot(params)
	}
	return f, nil
}

// Bind binds the effects that this package has. Those of the owner are PRAMIN,
// NV_XAL_EP_BAR0_WINDOW, NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE, NV_VIRTUAL_FUNCTION_DOORBELL and
// NV_PGSP_QUEUE_HEAD.
func (f *Face) Bind(b *mmio.Bindings) {
	f.tree.bind(b)
	f.gsp.bind(b)
	f.fsp.bind(b)
	for _, t := range []string{"NV_PTIMER_TIME_", "NV_VIRTUAL_FUNCTION_TIME_"} {
		b.OnRead(t+"0", func(int, uint32) uint32 { return uint32(f.cfg.Clock()) })
		b.OnRead(t+"1", func(int, uint32) uint32 { return uint32(f.cfg.Clock()>>32) & time1Bits })
	}
	// What the owner stores for the guest has landed when the access that stored it returned.
	b.OnRead("NV_UFLUSH_FB_FLUSH", func(_ int, v uint32) uint32 { return v &^ flushBusy })
	b.OnRead("NV_USABLE_FB_SIZE_IN_MB", func(int, uint32) uint32 { return uint32(f.cfg.VRAM >> 20) })
}

const (
	time1Bits = 1<<29 - 1 // of NV_PTIMER_TIME_1 that exist
	flushBusy = 1 << 1
)

// Attach resolves the registers of the built space. It is called once, after mmio.New and before the
// first access.
func (f *Face) Attach(s *mmio.Space) {
	f.tree.attach(s)
	f.gsp.attach(s)
	f.fsp.attach(s)
}

// Reset puts the units in their state after power-on. The owner resets the space first.
func (f *Face) Reset() {
	f.tree.TreeState = TreeState{}
	f.fsp.FSPState = FSPState{}
}

// Settle computes the interrupt line. edge means that a message is due: the line rose since the last
// call, or the driver enabled interrupts again with something pending.
func (f *Face) Settle() (level, edge bool) { return f.tree.settle() }

// RaiseGSP announces an event of GSP's.
func (f *Face) RaiseGSP() { f.gsp.raise() }

// HaltGSP stops GSP, which has unloaded itself. FSP can start it again.
func (f *Face) HaltGSP() { f.gsp.halt(gspUnloaded) }

// FailGSP stops GSP with an error in its mailbox. FSP can start it again.
func (f *Face) FailGSP() { f.gsp.halt(gspFailed) }

// Completed raises the non-stall interrupt of an engine.
func (f *Face) Completed(engine int) { f.tree.raise(EngineVector(engine)) }

// FaceState is a face's state besides its space's registers.
type FaceState struct {
	Version int       `json:"version"`
	Tree    TreeState `json:"interrupts"`
	FSP     FSPState  `json:"fsp"`
}

// FaceStateVersion is the version of FaceState that this package writes and reads.
const FaceStateVersion = 1

// State returns a copy of the face's state.
func (f *Face) State() FaceState {
	return FaceState{Version: FaceStateVersion, Tree: f.tree.TreeState, FSP: f.fsp.FSPState}
}

// SetState takes a state over. It refuses one of another version.
func (f *Face) SetState(st FaceState) error {
	if st.Version != FaceStateVersion {
		return fmt.Errorf("gh100: face state has version %d; this program reads version %d", st.Version, FaceStateVersion)
	}
	f.tree.TreeState, f.fsp.FSPState = st.Tree, st.FSP
	return nil
}

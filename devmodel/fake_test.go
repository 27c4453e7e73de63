package devmodel_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fakeCard records what a virtual GPU asks of it.
type fakeCard struct {
	calls       []string
	failing     atomic.Bool  // Time panics
	quarantined atomic.Value // why, a string

	runlistPending, preemptPending, stale, moving, busy bool
	status                                              uint32
	fault                                               *gf100.MMUFault
	doorbells                                           []uint8
	resumed, retried                                    []uint8
	triggered                                           []int
	scheduled                                           bool
	refreshed                                           []uint8
	bound                                               map[uint8]uint32
	enabled                                             map[uint8]bool
	runlist                                             [2]uint32
	invalidated                                         [2]uint32
}

func (c *fakeCard) call(name string) { c.calls = append(c.calls, name) }

func (c *fakeCard) Quarantine(why string) { c.quarantined.Store(why) }

func (c *fakeCard) VRAM() uint64 { return 64 << 20 }
func (c *fakeCard) Time() uint64 { // not a call: it has no effect
	if c.failing.Load() {
		panic("planted")
	}
	return 12345678
}

func (c *fakeCard) SetBlock(int, uint32) { c.call("SetBlock") }
func (c *fakeCard) SetPRAMIN(uint32)     { c.call("SetPRAMIN") }
func (c *fakeCard) SetPollArea(uint32)   { c.call("SetPollArea") }
func (c *fakeCard) MemoryBarrier()       {} // before every access to a register: not a call for one
func (c *fakeCard) Access()              {}

func (c *fakeCard) window() (gf100.MMUFault, bool) {
	if c.fault != nil {
		return *c.fault, false
	}
	return gf100.MMUFault{}, true
}

func (c *fakeCard) ReadBAR(int, uint64, []byte) (gf100.MMUFault, bool)  { return c.window() }
func (c *fakeCard) WriteBAR(int, uint64, []byte) (gf100.MMUFault, bool) { return c.window() }
func (c *fakeCard) ReadPRAMIN(uint32, uint32, []byte)                   { c.call("ReadPRAMIN") }
func (c *fakeCard) WritePRAMIN(uint32, uint32, []byte)                  { c.call("WritePRAMIN") }

func (c *fakeCard) Invalidate(pdb, v uint32) {
	c.call("Invalidate")
	c.invalidated = [2]uint32{pdb, v}
}

func (c *fakeCard) Invalidated() bool { c.call("Invalidated"); return !c.stale }
func (c *fakeCard) Shown() bool       { return !c.moving }

func (c *fakeCard) Bind(id uint8, v uint32) {
	c.call("Bind")
	if c.bound == nil {
		c.bound = map[uint8]uint32{}
	}
	c.bound[id] = v
}

func (c *fakeCard) Enable(id uint8, on bool) {
	c.call("Enable")
	if c.enabled == nil {
		c.enabled = map[uint8]bool{}
	}
	c.enabled[id] = on
}

func (c *fakeCard) ChannelBusy(uint8) bool     { c.call("ChannelBusy"); return c.busy }
func (c *fakeCard) Runlist(base, count uint32) { c.call("Runlist"); c.runlist = [2]uint32{base, count} }
func (c *fakeCard) RunlistPending() bool       { c.call("RunlistPending"); return c.runlistPending }
func (c *fakeCard) Preempt(uint8)              { c.call("Preempt") }
func (c *fakeCard) PreemptPending() bool       { c.call("PreemptPending"); return c.preemptPending }
func (c *fakeCard) Doorbell(id uint8)          { c.doorbells = append(c.doorbells, id) }
func (c *fakeCard) Refresh(id uint8)           { c.refreshed = append(c.refreshed, id) }
func (c *fakeCard) Resume(id uint8)            { c.call("Resume"); c.resumed = append(c.resumed, id) }
func (c *fakeCard) Retry(id uint8)             { c.call("Retry"); c.retried = append(c.retried, id) }
func (c *fakeCard) Schedule(on bool)           { c.call("Schedule"); c.scheduled = on }
func (c *fakeCard) TriggerFault(e int)         { c.call("TriggerFault"); c.triggered = append(c.triggered, e) }
func (c *fakeCard) EngineStatus(int) uint32    { c.call("EngineStatus"); return c.status }
func (c *fakeCard) Reset() error               { c.call("Reset"); return nil }

// fakeHost records a virtual GPU's interrupts.
type fakeHost struct {
	line  devmodel.Line
	edges int
}

func (h *fakeHost) Interrupt(l devmodel.Line) {
	h.line = l
	if l.Edge {
		h.edges++
	}
}

func newGPU(t *testing.T) (*devmodel.VGPU, *fakeCard, *fakeHost) {
	t.Helper()
	c, h := &fakeCard{}, &fakeHost{}
	v, err := devmodel.New(devmodel.Config{}, c.VRAM())
	require.NoError(t, err)
	v.Connect(c)
	v.AttachHost(h)
	t.Cleanup(v.Close)
	return v, c, h
}

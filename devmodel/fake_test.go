package devmodel_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fakeCard records what a virtual GPU asks of it, in words.
type fakeCard struct {
	calls       []string
	failing     atomic.Bool  // Time panics
	quarantined atomic.Value // why, a string

	runlistPending bool
	fault          *gf100.MMUFault
}

func (c *fakeCard) call(method string, args ...any) {
	for _, x := range args {
		if v, register := x.(uint32); register {
			x = fmt.Sprintf("%#x", v)
		}
		method = fmt.Sprint(method, " ", x)
	}
	c.calls = append(c.calls, method)
}

// took returns the calls of some methods since the last took.
func (c *fakeCard) took(methods ...string) []string {
	calls := slices.DeleteFunc(c.calls, func(call string) bool {
		method, _, _ := strings.Cut(call, " ")
		return !slices.Contains(methods, method)
	})
	c.calls = nil
	return calls
}

func (c *fakeCard) Quarantine(why string) { c.quarantined.Store(why) }
func (c *fakeCard) VRAM() uint64          { return 64 << 20 }
func (c *fakeCard) MemoryBarrier()        {} // before every access to a register: not a call for one
func (c *fakeCard) Access()               {}
func (c *fakeCard) Shown() bool           { return true }

func (c *fakeCard) Time() uint64 { // not a call: it has no effect
	if c.failing.Load() {
		panic("planted")
	}
	return 12345678
}

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
func (c *fakeCard) SetBlock(bar int, v uint32)                          { c.call("SetBlock", bar, v) }
func (c *fakeCard) SetPRAMIN(uint32)                                    { c.call("SetPRAMIN") }
func (c *fakeCard) SetPollArea(uint32)                                  { c.call("SetPollArea") }
func (c *fakeCard) Invalidate(pdb, v uint32)                            { c.call("Invalidate", pdb, v) }
func (c *fakeCard) Invalidated() bool                                   { c.call("Invalidated"); return true }
func (c *fakeCard) Bind(id uint8, v uint32)                             { c.call("Bind", id, v) }
func (c *fakeCard) Enable(id uint8, on bool)                            { c.call("Enable", id, on) }
func (c *fakeCard) ChannelBusy(uint8) bool                              { c.call("ChannelBusy"); return false }
func (c *fakeCard) Runlist(base, count uint32)                          { c.call("Runlist", base, count) }
func (c *fakeCard) RunlistPending() bool                                { c.call("RunlistPending"); return c.runlistPending }
func (c *fakeCard) Preempt(uint8)                                       { c.call("Preempt") }
func (c *fakeCard) PreemptPending() bool                                { c.call("PreemptPending"); return false }
func (c *fakeCard) Doorbell(id uint8)                                   { c.call("Doorbell", id) }
func (c *fakeCard) Refresh(id uint8)                                    { c.call("Refresh", id) }
func (c *fakeCard) Resume(id uint8)                                     { c.call("Resume", id) }
func (c *fakeCard) Retry(id uint8)                                      { c.call("Retry", id) }
func (c *fakeCard) Schedule(on bool)                                    { c.call("Schedule", on) }
func (c *fakeCard) TriggerFault(e int)                                  { c.call("TriggerFault", e) }
func (c *fakeCard) EngineStatus(int) uint32                             { c.call("EngineStatus"); return 0 }
func (c *fakeCard) Reset() error                                        { c.call("Reset"); return nil }

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

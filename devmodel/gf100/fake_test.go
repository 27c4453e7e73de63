package gf100_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
)

// fakeCard records what a virtual GPU asks of it, in words.
type fakeCard struct {
	calls       []string
	failing     atomic.Bool  // Time panics
	quarantined atomic.Value // why, a string

	runlistPending bool
	fault          *chip.MMUFault
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
func (c *fakeCard) MemoryBarrier()        {} // before every access to a register: not a call for one
func (c *fakeCard) Access()               {}
func (c *fakeCard) Shown() bool           { return true }

func (c *fakeCard) Time() uint64 { // not a call: it has no effect
	if c.failing.Load() {
		panic("planted")
	}
	return 12345678
}

func (c *fakeCard) window() (chip.MMUFault, bool) {
	if c.fault != nil {
		return *c.fault, false
	}
	return chip.MMUFault{}, true
}

// settings and ops are the names of settings and operations.
var (
	settings = [gf100.Settings]string{"BAR1Block", "BAR3Block", "PRAMINBase", "PollBase", "MayRun"}
	ops      = [gf100.Ops]string{"Bind", "Enable", "Preempt", "Doorbell", "Refresh", "Resume", "Retry"}
)

func (c *fakeCard) Read(w gf100.Window, _ uint64, _ []byte) (chip.MMUFault, bool) {
	if w == gf100.PRAMIN {
		c.call("Read")
	}
	return c.window()
}

func (c *fakeCard) Write(w gf100.Window, off uint64, p []byte) (chip.MMUFault, bool) {
	return c.Read(w, off, p)
}
func (c *fakeCard) Set(s gf100.Setting, v uint32) { c.call(settings[s], v) }
func (c *fakeCard) Channel(id uint8, op gf100.Op, v uint32) {
	if op > gf100.Enable {
		c.call(ops[op], id)
		return
	}
	c.call(ops[op], id, v)
}
func (c *fakeCard) Invalidate(pdb, v uint32)   { c.call("Invalidate", pdb, v) }
func (c *fakeCard) Runlist(base, count uint32) { c.call("Runlist", base, count) }
func (c *fakeCard) Pending() gf100.Pending {
	c.call("Pending")
	return gf100.Pending{Runlist: c.runlistPending}
}
func (c *fakeCard) Busy(uint8) bool         { c.call("Busy"); return false }
func (c *fakeCard) EngineStatus(int) uint32 { c.call("EngineStatus"); return 0 }
func (c *fakeCard) EndEngine(e int)         { c.call("EndEngine", e) }
func (c *fakeCard) Reset() error            { c.call("Reset"); return nil }

// fakeHost records a virtual GPU's interrupts.
type fakeHost struct {
	line  mmio.Line
	edges int
}

func (h *fakeHost) Interrupt(l mmio.Line) {
	h.line = l
	if l.Edge {
		h.edges++
	}
}

func newGPU(t *testing.T) (*gf100.VGPU, *fakeCard, *fakeHost) {
	t.Helper()
	c, h := &fakeCard{}, &fakeHost{}
	v, err := gf100.New(gf100.Config{}, 64<<20)
	require.NoError(t, err)
	v.Connect(c)
	v.AttachHost(h)
	t.Cleanup(v.Close)
	return v, c, h
}

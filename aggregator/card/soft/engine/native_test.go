package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// erratic is a Native that executes any part of a step, and leaves any block to a processor.
type erratic struct {
	t   *rapid.T
	env *Env
	ran int
}

// Run implements Native.
func (e *erratic) Executed(*Job, uint64) {}

func (e *erratic) Run(j *Job) NativeResult {
	outcome := rapid.SampledFrom([]NativeOutcome{NotNative, RanNative, RanNative, NeedsProcessor}).Draw(e.t, "outcome")
	if outcome == NotNative {
		return NativeResult{}
	}
	p := &e.env.Processors.all[0]
	p.pages = e.env.Pages
	l := j.Blocks
	l.Memory, l.Program = p.memory, &interp.Program{Memory: p.memory, Base: j.Launch.Region}
	grid := j.Grid
	slot := rapid.IntRange(0, len(grid.Running)-1).Draw(e.t, "slot")
	for range rapid.IntRange(0, 20).Draw(e.t, "pieces") {
		i := rapid.IntRange(0, len(grid.Running)-1).Draw(e.t, "block")
		b := &interp.Block{Launch: &l, BlockState: &grid.Running[i]}
		switch {
		case !b.Done():
			n, fault := b.Step(rapid.IntRange(1, 500).Draw(e.t, "instructions"))
			require.Nil(e.t, fault)
			e.ran += n
		default:
			if t := &grid.Taken[i]; t.Next == t.End { // as a process takes several at once
				*t = Range{grid.Next, min(grid.Next+rapid.Uint64Range(0, 4).Draw(e.t, "blocks"), grid.Blocks)}
				grid.Next = t.End
			}
			if n, ok := grid.Take(); ok {
				b.Reset(place(n, l.Grid))
			}
		}
	}
	return NativeResult{Outcome: outcome, Slot: slot}
}

// TestNativeSteps: blocks go from a process to processors and back at any instruction, and each thread runs once.
func TestNativeSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g GR
		m := newTestMemory()
		m.mapPage(programData)
		env := newEnv(m)
		native := &erratic{t: t, env: env}
		env.Native = native
		g.prepare(t, env, m, storeNumber)
		env.Processors = newProcessors(rapid.IntRange(1, 3).Draw(t, "processors"))
		now := uint64(0)
		env.Clock = func() uint64 { now++; return now }
		for o := g.Method(env, 0x90c0, 0x368, 0); o != Done; o = g.Step(env) {
			require.Equal(t, Busy, o)
			env.Begin(now + rapid.Uint64Range(0, 5).Draw(t, "time"))
		}
		for i := range uint32(320) {
			require.Equal(t, i, m.word(programData+uint64(i)*4))
		}
	})
}

// lostNative is a Native whose process was lost.
type lostNative struct{}

func (lostNative) Executed(*Job, uint64) {}

func (lostNative) Run(*Job) NativeResult {
	return NativeResult{Outcome: NativeFault, Fault: &interp.Fault{Cause: interp.Lost, Lane: -1, What: "killed"}}
}

// TestNativeLost: a launch that was lost with its process is refused, as one whose program is wrong.
func TestNativeLost(t *testing.T) {
	var g GR
	m := newTestMemory()
	m.mapPage(programData)
	env := newEnv(m)
	var said error
	env.ProgramFault = func(err error) { said = err }
	env.Native = lostNative{}
	g.prepare(t, env, m, storeNumber)
	require.Equal(t, Illegal, finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { return g.Step(env) }))
	require.Equal(t, BadProgram, g.Refusal.Reason)
	require.ErrorContains(t, said, "lost with its process")
	env.Native = nil
	require.Equal(t, Done, finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { return g.Step(env) }))
	require.EqualValues(t, 7, m.word(programData+4*7))
}

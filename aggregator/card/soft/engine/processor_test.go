package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// loader is an executor of a program that only loads a word, at no cost of its own.
type loader struct {
	interp.Executor
	launch  *interp.Launch
	loads   int
	stopped bool
}

func (x *loader) Start(l *interp.Launch) { x.launch = l }
func (x *loader) Stop()                  { x.stopped = true }

func (x *loader) Step(*interp.Block, int) (int, *interp.Fault) {
	var word [4]byte
	for x.stopped = false; !x.stopped; x.loads++ {
		if err := x.launch.Memory.Load(programData, word[:]); err != nil || x.loads == 1<<20 {
			return 0, &interp.Fault{Err: err, What: "it was not stopped"}
		}
	}
	return 0, nil
}

// TestFoundPagesEndSteps: what a program finds without a look-up takes time too.
func TestFoundPagesEndSteps(t *testing.T) {
	var x loader
	var g GR
	m := newTestMemory()
	m.mapPage(programData)
	env := newEnv(m)
	env.Processors = NewProcessors(1, func() sm.Executor { return &x })
	g.prepare(t, env, m, "exit")
	env.Clock = func() uint64 { return 1 }
	env.Begin(0)
	o := g.Method(env, 0x90c0, 0x368, 0)
	for range 5 {
		require.Equal(t, Busy, o)
		require.Equal(t, 1, m.calls)
		require.LessOrEqual(t, x.loads, 2*meterGrain/costFound)
		x.loads = 0
		env.Begin(0)
		o = g.Step(env)
	}
}

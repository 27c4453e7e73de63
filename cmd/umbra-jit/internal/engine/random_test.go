package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// totals are what random programs did.
type totals struct {
	programs              int
	compiled, interpreted uint64 // instructions
	stops, moved          uint64 // stops where interp took the block, and the instructions that it executed there
}

// Programs with divergence, loops, memory, atomics and barriers stay the same, wherever they are stopped. A third of
// them stops at every back edge, where interp takes the block, and gives it back some instructions later.
func TestRandomPrograms(t *testing.T) {
	c := jittest.Compiler(t)
	p, err := scale.ProgramsOf(1000, 20_000)
	require.NoError(t, err)
	var all totals
	const batch = 100 // programs whose memory is given back at once
	end := p.First + p.Count
	for first := p.First; first < end && !p.Over() && !t.Failed(); first += batch {
		t.Run(fmt.Sprintf("seed=%d,first=%d", p.Seed, first), func(t *testing.T) {
			for n := first; n < min(first+batch, end) && !p.Over(); n++ {
				all.run(t, c, &p, n)
			}
		})
	}
	t.Logf("%d programs of seed %d from %d: %d instructions compiled, %d interpreted; %d stops where interp took over, for %d instructions",
		all.programs, p.Seed, p.First, all.compiled, all.interpreted, all.stops, all.moved)
	if p.Count > 1 {
		require.Greater(t, all.compiled, all.interpreted, "instructions that were compiled, and that were not")
	}
}

// run runs the program of a number.
func (s *totals) run(t *testing.T, c *llvm.Compiler, p *scale.Programs, n int) {
	r := rand.New(rand.NewPCG(p.Seed, uint64(n)))
	g := generate(r, n)
	name := fmt.Sprintf("to run it again: %s\nsize %v, %d blocks, constants %#x, passes %s\n%s", p.Only(n), g.size, g.blocks, g.args, g.passes, g.text)
	w := newTwins(t, c, g.passes, assemble(t, g.text), g.size, func(m smtest.Memory) {
		for i, arg := range g.args {
			binary.LittleEndian.PutUint32(m[smtest.Consts-smtest.Base+8+4*i:], arg)
		}
		for data := m[smtest.Data-smtest.Base:][:1024]; len(data) > 0; data = data[8:] {
			binary.LittleEndian.PutUint64(data, r.Uint64())
		}
	})
	budget := func() uint64 { return 1 + r.Uint64N(2000) }
	if g.moves {
		budget = func() uint64 { return 1 }
		w.stopped = func() {
			s.stops++
			s.moved += uint64(w.move(t, name, r.IntN(8)))
		}
	}
	require.Nil(t, w.blocks(t, name, budget, g.blocks), name)
	s.programs++
	s.compiled, s.interpreted = s.compiled+w.runner.Compiled, s.interpreted+w.runner.Interpreted
}

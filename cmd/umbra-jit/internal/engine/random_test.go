package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
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

func (s *totals) add(o totals) {
	s.programs += o.programs
	s.compiled, s.interpreted = s.compiled+o.compiled, s.interpreted+o.interpreted
	s.stops, s.moved = s.stops+o.stops, s.moved+o.moved
}

// bench is what runs one random program at a time.
type bench struct {
	compiler *llvm.Compiler
	pages    *Pages
}

func newBench(t *testing.T) bench {
	c := jittest.Compiler(t)
	sharedParts(t, c)
	pages, err := NewPages()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pages.Close()) })
	return bench{c, pages}
}

// Programs with divergence, loops, memory, atomics and barriers stay the same, wherever they are stopped. A third of
// them stops at every back edge, where interp takes the block, and gives it back some instructions later.
func TestRandomPrograms(t *testing.T) {
	p, err := scale.ProgramsOf(1000, 20_000)
	require.NoError(t, err)
	var all totals
	var mu sync.Mutex
	benches := make(chan bench, runtime.GOMAXPROCS(0)) // of which each is used by one batch at a time
	for range cap(benches) {
		benches <- newBench(t)
	}
	const size = 100 // of a batch
	first := func(batch int) int { return p.First + batch*size }
	name := func(batch int) string { return fmt.Sprintf("seed=%d,first=%d", p.Seed, first(batch)) }
	test := t
	scale.Each(t, (p.Count+size-1)/size, name, func(t *testing.T, batch int) {
		with := <-benches
		var sum totals
		defer func() { // also if a program fails
			benches <- with
			mu.Lock()
			defer mu.Unlock()
			all.add(sum)
		}()
		for n := first(batch); n < min(first(batch+1), p.First+p.Count) && !p.Over() && !test.Failed(); n++ {
			sum.run(t, with, &p, n)
		}
	})
	t.Logf("%d programs of seed %d from %d: %d instructions compiled, %d interpreted; %d stops where interp took over, for %d instructions",
		all.programs, p.Seed, p.First, all.compiled, all.interpreted, all.stops, all.moved)
	if p.Count > 1 {
		require.Greater(t, all.compiled, all.interpreted, "instructions that were compiled, and that were not")
	}
}

// run runs the program of a number.
func (s *totals) run(t *testing.T, with bench, p *scale.Programs, n int) {
	r := rand.New(rand.NewPCG(p.Seed, uint64(n)))
	g := generate(r, n)
	name := fmt.Sprintf("to run it again: %s\nsize %v, %d blocks, constants %#x, passes %s\n%s", p.Only(n), g.size, g.blocks, g.args, g.passes, g.text)
	w := newTwinsIn(t, with.pages, with.compiler, g.passes, assemble(t, g.text), g.size, func(m smtest.Memory) {
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

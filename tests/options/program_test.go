package options

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/guest/program"
)

var (
	allCombinations = flag.Bool("all-combinations", false, "run random programs with every combination of options, and not only with some that are drawn")
	seed            = flag.Uint64("seed", 0, "draws combinations and programs; 0: by the clock")
)

const (
	drawn     = 16 // combinations
	perDrawn  = 3  // programs
	perOfAll  = 2
	perOracle = 12
)

// TestPrograms: random programs (maps, unmaps, aliases, copies, faults, stores and
// moves under work) leave the memory, the fences and the faults that the model says,
// with combinations that are drawn; and so they do with nothing clever.
func TestPrograms(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("again with -seed %d", s)
	rng := rand.New(rand.NewPCG(s, 1))
	list, n := slices.Clone(All()), perOfAll
	if !*allCombinations {
		rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		list, n = list[:max(drawn/share, 2)], perDrawn
	}
	run(t, Oracle, s, perOracle)
	for _, c := range list {
		run(t, c, s, n)
	}
}

// run does the same programs whatever the combination is.
func run(t *testing.T, c Combination, seed uint64, n int) {
	t.Run(c.String(), func(t *testing.T) {
		g := attach(t, c)
		require.NoError(t, programs(g, seed, n))
	})
}

// programs does n programs. They do without large buffers, and have rings in RAM: where
// accesses are trapped, what is written, or cleared, takes long.
func programs(g *guest.Guest, seed uint64, n int) error {
	gen := program.Gen(program.Limits{NoLarge: true, Buffers: 3, Ops: 25})
	for i := range n {
		p := gen.Example(int(seed>>33) + i)
		for k := range p.Channels {
			p.Channels[k].ChannelConfig = guest.ChannelConfig{RingLog2: p.Channels[k].RingLog2, Push: 4096, RingRAM: true, PushRAM: true}
		}
		if err := errors.Join(g.Reset(), program.Run(g, &p)); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	return nil
}

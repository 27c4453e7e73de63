package isolation

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/tests/guest/hostile"
	"github.com/umbra-gpu/umbra/tests/options"
)

const (
	wait = time.Minute // for what comes at all
	tick = 50 * time.Millisecond
)

var allCombinations = flag.Bool("all-combinations", false, "try all cases with every combination of options, for an hour, and not only with those that have all pairs")

var casesOfAll = flag.Int("cases", len(cases), "with -all-combinations: how many cases each combination has, by turns")

// checks is how many random attacks each combination gets.
const checks = 7

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("rapid.checks", strconv.Itoa(checks)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// combinations are those that the gate is tried with: under the race detector, of
// these one in so many.
func combinations() []options.Combination {
	if *allCombinations {
		return options.All()
	}
	return options.Pairs()
}

// mapped is the combination with everything mapped, the doorbells too.
func mapped(t testing.TB) options.Combination {
	c, err := options.Find("lazy incremental bar1+bar3+pramin+rom poll off")
	require.NoError(t, err)
	return c
}

func ward(t testing.TB, c options.Combination) *Ward {
	t.Helper()
	w, err := NewWard(c, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// TestScattered holds the ward to be what the gate needs: memory in pieces, next
// to that of others, and nobody disturbed by nothing.
func TestScattered(t *testing.T) {
	w := ward(t, mapped(t))
	require.Greater(t, len(w.Seat.Guest.Extents()), 1)
	require.Empty(t, w.Violations())
}

// plan says which cases are tried at which places with which of n combinations: each
// case at each place with one of them. With all combinations each has all cases, at
// one place or another.
func plan(n, places int) [][][2]int {
	out := make([][][2]int, n)
	for i := range cases {
		if n > len(cases)*places {
			for k := range out {
				if (i+k)%len(cases) < *casesOfAll {
					out[k] = append(out[k], [2]int{i, (k + i) % places})
				}
			}
			continue
		}
		for p := range places {
			k := (5*i + p) % n
			out[k] = append(out[k], [2]int{i, p})
		}
	}
	return out
}

// TestPlan: each case meets each value of each option.
func TestPlan(t *testing.T) {
	type meeting struct{ c, axis, word int }
	list := options.Pairs()
	met := make(map[meeting]bool)
	units := 0
	for k, todo := range plan(len(list), placeCount) {
		units += len(todo)
		for _, u := range todo {
			for axis, word := range list[k] {
				met[meeting{u[0], axis, word}] = true
			}
		}
	}
	require.Equal(t, len(cases)*placeCount, units)
	for i := range cases {
		for axis := range options.Axes {
			for word := range options.Axes[axis].Words {
				require.True(t, met[meeting{i, axis, word}], "%s never meets %s %s", cases[i].name, options.Axes[axis].Key, options.Axes[axis].Words[word])
			}
		}
	}
}

// TestGate has the attacker try the cases that are planned for a combination, and then
// whatever comes, while the victim copies. Combinations have cards of their own, and run
// beside each other.
func TestGate(t *testing.T) {
	list := combinations()
	todo := plan(len(list), placeCount)
	var copies atomic.Uint64
	t.Cleanup(func() {
		t.Logf("%d combinations, %d cases at %d places, %d copies of the victim's", len(list), len(cases), placeCount, copies.Load())
	})
	for n, c := range list {
		if n%share != 0 {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			// Not by Cleanup: what that remembers stays until all of them have ended.
			w, err := NewWard(c, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, w.Close()) }()
			for _, u := range todo[n] {
				w.try(t, u[0], u[1])
			}
			if !*allCombinations {
				t.Run("anything", rapid.MakeCheck(attack(w)))
			}
			copies.Add(w.Copies())
			require.Equal(t, c.Windows(), w.Seat.Guest.Stats().Mapped.PagesMoved.Load() > 0)
			require.Equal(t, c.Polled(), w.GPUs[1].Guest.Stats().PolledDoorbells.Load() > 0)
		})
	}
}

func attack(w *Ward) func(*rapid.T) {
	return func(t *rapid.T) {
		require.NoError(t, w.Attacker.Restart())
		for _, act := range hostile.Gen(40).Draw(t, "actions") {
			require.NoError(t, w.Attacker.Do(act))
		}
		require.Empty(t, w.Violations())
	}
}

func FuzzGate(f *testing.F) {
	w, err := NewWard(mapped(f), nil)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, w.Close()) })
	for seed := range byte(4) {
		// As much as the longest draw takes: rapid passes over an input that ends early.
		raw := make([]byte, 64<<10)
		rand.NewChaCha8([32]byte{seed}).Read(raw)
		f.Add(raw)
	}
	f.Fuzz(rapid.MakeFuzz(attack(w)))
}

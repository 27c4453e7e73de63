package isolation

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/devmodel/guest/hostile"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	wait = rig.Patience
	tick = 50 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// random is how many lists of random attacks each combination gets.
const random = 5

// ward makes a ward that maps everything.
func ward(t testing.TB) *Ward {
	t.Helper()
	w := NewWard(t, options.Mapped, testserver.SharedConfig{})
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// TestScattered checks that the ward is what the gate needs: memory in pieces next
// to that of others, and no violation without an attack.
func TestScattered(t *testing.T) {
	w := ward(t)
	require.Greater(t, len(w.Endpoint.Guest.Extents()), 1)
	require.Empty(t, w.Violations())
}

// unit is a case at a place.
type unit struct{ test, target int }

// plan spreads the cases over n combinations. The gate tries each case at every
// second place; of any two places next to each other it tries one. The release suite
// tries each case at each place with three combinations.
func plan(n int) [][]unit {
	out := make([][]unit, n)
	for i := range cases {
		for p := range targetCount {
			if !scale.Release() && (i+p)%2 != 0 {
				continue
			}
			for round := range scale.Of(1, 3) {
				k := (5*i + p + round*n/3) % n
				out[k] = append(out[k], unit{i, p})
			}
		}
	}
	return out
}

// TestGate has the attacker try the cases planned for a combination, and then
// random actions, while the victim copies. Each combination has a card of its own.
func TestGate(t *testing.T) {
	list := options.Few()
	if scale.Release() { // tests/options runs its programs with all combinations
		for part := range slices.Chunk(options.All(), 9) {
			list = append(list, part[0])
		}
	}
	for n, units := range plan(len(list)) {
		t.Run(list[n].String(), func(t *testing.T) {
			t.Parallel()
			gate(t, list[n], testserver.SharedConfig{}, n, units)
		})
	}
}

// gate has the attacker try the cases, and then random actions from a seed on.
func gate(t *testing.T, c options.Combination, cfg testserver.SharedConfig, seed int, units []unit) {
	// Not by Cleanup, which would keep the ward until all of them have ended.
	w := NewWard(t, c, cfg)
	defer func() { require.NoError(t, w.Close()) }()
	for _, u := range units {
		w.try(t, u.test, u.target)
	}
	for i := range random {
		w.attack(t, hostile.Gen(40).Example(seed*random+i))
	}
	require.Equal(t, c.Windows(), w.Endpoint.Guest.Stats().Windows.Mapped.PagesMoved.Load() > 0)
}

// TestGateOtherCards is TestGate with the least that cards may have. They report their
// accesses, as the software card does, so nothing is checked less.
func TestGateOtherCards(t *testing.T) {
	for name, cfg := range testserver.OtherCards {
		list := options.Bare()
		for n, units := range plan(len(list)) {
			if !scale.Release() && n != 3 {
				continue
			}
			t.Run(name+", "+list[n].String(), func(t *testing.T) {
				t.Parallel()
				gate(t, list[n], cfg, n, units)
			})
		}
	}
}

func (w *Ward) attack(t require.TestingT, actions []hostile.Action) {
	require.NoError(t, w.Attacker.Restart())
	for _, act := range actions {
		require.NoError(t, w.Attacker.Do(act))
	}
	require.Empty(t, w.Violations(), "after %v", actions)
}

// addSeeds adds inputs as long as the longest draw takes: rapid skips one that ends early.
func addSeeds(f *testing.F) {
	for seed := range byte(4) {
		raw := make([]byte, 64<<10)
		rand.NewChaCha8([32]byte{seed}).Read(raw)
		f.Add(raw)
	}
}

func FuzzGate(f *testing.F) {
	w := ward(f)
	addSeeds(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { w.attack(t, hostile.Gen(40).Draw(t, "actions")) }))
}

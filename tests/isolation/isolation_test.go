package isolation

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/tests/guest/hostile"
)

const (
	wait = 10 * time.Second
	tick = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	flag.Parse()
	if share > 1 {
		if err := flag.Set("rapid.checks", strconv.Itoa(100/share)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

func ward(t testing.TB) *Ward {
	t.Helper()
	w, err := NewWard(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// TestScattered holds the ward to be what the gate needs: memory in pieces, next
// to that of others, and nobody disturbed by nothing.
func TestScattered(t *testing.T) {
	w := ward(t)
	require.Greater(t, len(w.Seat.Guest.Extents()), 1)
	require.Empty(t, w.Violations())
}

// TestGateRandom has random attacks go on while the victim copies.
func TestGateRandom(t *testing.T) {
	w := ward(t)
	before := w.Copies()
	rapid.Check(t, attack(w))
	require.Greater(t, w.Copies(), before)
	require.NotZero(t, w.Seat.Guest.Stats().Mapped.PagesMoved.Load())
	require.NotZero(t, w.seats[1].Guest.Stats().PolledBells.Load())
	t.Logf("victim: %d copies, the slowest took %v", w.Copies()-before, time.Duration(w.victim.worst.Load()))
	for _, c := range w.Seat.Guest.Stats().Counts() {
		if c.N > 0 {
			t.Logf("attacker: %s %d", c.Name, c.N)
		}
	}
}

// TestGateRandomTrapped is the same with nothing mapped.
func TestGateRandomTrapped(t *testing.T) {
	w, err := NewWardOf(homes.MapNone, doorbell.Trap, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	before := w.Copies()
	rapid.Check(t, attack(w))
	require.Greater(t, w.Copies(), before)
	require.Zero(t, w.Seat.Guest.Stats().Mapped.PagesMoved.Load())
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
	w, err := NewWard(nil)
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

package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestAlone: a guest alone on the card does the same work without a scheduler and with the
// default one. The number of traps is equal. The card gets one doorbell for an entry that
// is waited for, and at most one per entry for several, by one doorbell or one after the
// other. Without a scheduler each doorbell reaches the card.
func TestAlone(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var traps, rings [2][3]uint64
			cfg := sched.Default()
			for i, s := range []*sched.Config{nil, &cfg} {
				traps[i], rings[i] = alone(t, m.maps, s)
			}
			t.Logf("traps %v, doorbells %v: one at a time, %d entries together, %d in a row", traps, rings, batch, batch)
			require.Equal(t, traps[0], traps[1])
			require.EqualValues(t, rounds, rings[0][1])
			for i, r := range rings {
				require.EqualValues(t, rounds, r[0], "%d", i)
				require.LessOrEqual(t, r[1], uint64(rounds*batch), "%d", i)
				require.LessOrEqual(t, r[2], uint64(rounds*batch), "%d", i)
			}
		})
	}
}

const (
	rounds = 50
	batch  = 8
)

// alone counts the guest's trapped writes and the card's doorbells for submissions of one
// entry that are waited for, of several by one doorbell, and of one each in a row.
func alone(t *testing.T, maps aperture.Map, schedule *sched.Config) (traps, rings [3]uint64) {
	h := &hall{t: t, Rig: rig.New(t, testserver.SharedConfig{Limits: aggregator.Options{Scheduler: schedule}}), maps: maps}
	p := h.join("a")
	counted := func() (writes, doorbells uint64) {
		p.GPGet() // after posted writes
		for _, r := range h.GPUs[0].Traps() {
			writes += r.Writes
		}
		return writes, h.Card.Stats().Doorbells.Load()
	}
	for i, submit := range []func(){
		func() { p.submit(1) },
		func() { p.submit(batch) },
		func() {
			for range batch {
				p.submit(1)
			}
		},
	} {
		writes, doorbells := counted()
		for range rounds {
			submit()
			require.Eventually(t, func() bool { return p.GPGet() == p.put }, patience, 10*time.Microsecond)
		}
		after, doorbellsAfter := counted()
		traps[i], rings[i] = after-writes, doorbellsAfter-doorbells
	}
	return traps, rings
}

package neighbours

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/tests/options"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func street(t testing.TB, name string, set func(*aggregator.Options)) *Street {
	t.Helper()
	c, err := options.Find(name)
	require.NoError(t, err)
	s, err := NewStreet(c, set)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// live has the nuisance go on while the residents live, and looks that none of them
// was disturbed.
func live(t *testing.T, s *Street, f func() error) {
	t.Helper()
	before := make([]uint64, len(s.Residents))
	for i, r := range s.Residents {
		before[i] = r.done
	}
	_, err := s.Live(f)
	require.NoError(t, err)
	for i, r := range s.Residents {
		require.Greater(t, r.done, before[i])
		require.Empty(t, r.seat.Guest.SafeMode())
		for _, c := range r.seat.Guest.Stats().Counts() {
			if c.Rule || c.Name == "card_timeouts" {
				require.Zero(t, c.N, "%s: %s", r.seat.Guest.Name(), c.Name)
			}
		}
	}
}

// TestThrashIsBounded: no trap of a guest that has all its pages move moves more than
// the limit (limits.map-moves), which map_pages_moved counts; what is left is counted
// as deferred, and done by later traps.
func TestThrashIsBounded(t *testing.T) {
	const limit, rounds = 128, 6
	s := street(t, nuisances[0].options, func(o *aggregator.Options) { o.Map.Moves = limit })
	do, err := nuisances[0].prepare(s.Nuisance)
	require.NoError(t, err)
	stats := &s.Seat.Guest.Stats().Mapped
	moved, traps, deferred := stats.PagesMoved.Load(), s.traps(), stats.Deferred.Load()
	most := uint64(0)
	live(t, s, func() error {
		return repeat(rounds, func() error {
			m, n := stats.PagesMoved.Load(), s.traps()
			err := do()
			m, n = stats.PagesMoved.Load()-m, s.traps()-n
			most = max(most, m/n)
			return err
		})
	})
	moved, traps, deferred = stats.PagesMoved.Load()-moved, s.traps()-traps, stats.Deferred.Load()-deferred
	t.Logf("%d pages moved in %d traps, %d a trap in the worst round; %d put off", moved, traps, most, deferred)
	require.GreaterOrEqual(t, moved, uint64(2*rounds*thrashed>>12), "nothing thrashed")
	require.LessOrEqual(t, most, uint64(2*limit), "a page leaves one place and enters another")
	require.NotZero(t, deferred)
	require.LessOrEqual(t, stats.Replicas.Load(), int64(homes.Limits{}.Replicas+1024))
	require.Zero(t, stats.MovesRefused.Load())
}

func (s *Street) traps() (n uint64) {
	for _, r := range s.Seat.Watched.Traps() {
		n += r.Reads + r.Writes
	}
	return n
}

func repeat(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// TestStormIsBounded: of the tables of a guest that writes, invalidates and submits
// without waiting, no more is looked at than its rate (limits.table-rate) and four
// times its share of table memory at once, and one scan. The counts are
// entries_examined, of 8 bytes each, and bytes_compared.
func TestStormIsBounded(t *testing.T) {
	const rate = 1 << 20
	s := street(t, nuisances[1].options, func(o *aggregator.Options) { o.TableRate = rate })
	do, err := nuisances[1].prepare(s.Nuisance)
	require.NoError(t, err)
	stats := s.Seat.Guest.Stats()
	looked := func() uint64 { return stats.EntriesExamined.Load()*8 + stats.BytesCompared.Load() }
	before, scans, invalidates, begin := looked(), stats.Scans.Load(), stats.Invalidates.Load(), time.Now()
	live(t, s, func() error {
		for held := false; !held || time.Since(begin) < 2*time.Second; held = stats.ThrottleTime.Load() > 0 {
			if err := do(); err != nil || time.Since(begin) > time.Minute {
				return err
			}
		}
		return nil
	})
	took := time.Since(begin)
	n := looked() - before
	scans, invalidates = stats.Scans.Load()-scans, stats.Invalidates.Load()-invalidates
	t.Logf("%d invalidates, %d scans, %d MiB looked at in %v, waited %v", invalidates, scans, n>>20, took, time.Duration(stats.ThrottleTime.Load()))
	const scan = 4 << 20 // what one of this guest's tables comes to, and more
	require.LessOrEqual(t, n, uint64(rate*took.Seconds())+4*tables+scan)
	require.LessOrEqual(t, scans, invalidates+1)
	require.NotZero(t, stats.ThrottleTime.Load(), "it was never held back, which is what the test is about")
}

// TestBellsAreBounded: a doorbell that is trapped is one bell (bells) and no more; of
// those that are looked for, no more are found than there were looks, and looks are no
// more than one in doorbell-fast (limits), whatever the guest does.
func TestBellsAreBounded(t *testing.T) {
	for _, n := range nuisances[2:] {
		t.Run(n.name, func(t *testing.T) {
			s := street(t, n.options, nil)
			do, err := n.prepare(s.Nuisance)
			require.NoError(t, err)
			stats, poller := s.Seat.Guest.Stats(), s.Poller()
			rung := uint64(0)
			bells0, polled0, looks0, begin := stats.Bells.Load(), stats.PolledBells.Load(), poller.Looks.Load(), time.Now()
			live(t, s, during(time.Second, func() error { rung += bells; return do() }))
			took := time.Since(begin)
			heard, polled, looks := stats.Bells.Load()-bells0, stats.PolledBells.Load()-polled0, poller.Looks.Load()-looks0
			t.Logf("%d stores, %d bells heard, %d of them by %d looks in %v", rung, heard, polled, looks, took)
			require.LessOrEqual(t, heard, rung)
			require.LessOrEqual(t, polled, looks)
			fast := s.limits.Pace.Fast
			require.NotZero(t, fast)
			require.LessOrEqual(t, looks, uint64(took/fast)+2)
			if s.options.Polled() {
				require.NotZero(t, polled)
			} else {
				require.Equal(t, rung, heard)
			}
		})
	}
}

// BenchmarkNeighbours measures what residents feel: how long their copies take beside
// each nuisance, as a ratio to the same beside a guest that reads a register all the
// time, and beside nobody. The three take turns.
func BenchmarkNeighbours(b *testing.B) {
	type row struct {
		nuisance
		set func(*aggregator.Options)
	}
	var rows []row
	for _, n := range nuisances {
		rows = append(rows, row{n, nil})
	}
	// What the limit is good for that bounds a storm: the default is 256 MiB.
	held := nuisances[1]
	held.name += ", 32 MiB a second"
	rows = append(rows, row{held, func(o *aggregator.Options) { o.TableRate = 32 << 20 }})
	for _, n := range rows {
		b.Run(n.name, func(b *testing.B) {
			s := street(b, n.options, n.set)
			do, err := n.prepare(s.Nuisance)
			require.NoError(b, err)
			ways := []func() error{func() error { time.Sleep(turn / 8); return nil }, busy(s.Nuisance), do}
			took := make([][]time.Duration, len(ways))
			shadows, begin := s.Seat.Guest.Stats().ShadowTime.Load(), time.Now()
			for b.Loop() {
				for range turns {
					for i, f := range ways {
						list, err := s.Live(during(turn, f))
						require.NoError(b, err)
						took[i] = append(took[i], list...)
					}
				}
			}
			for _, q := range []struct {
				name string
				at   float64
			}{{"p50", 0.5}, {"p99", 0.99}} {
				alone, fair, beside := quantile(took[0], q.at), quantile(took[1], q.at), quantile(took[2], q.at)
				b.ReportMetric(float64(alone.Microseconds()), "us-alone-"+q.name)
				b.ReportMetric(float64(fair)/float64(alone), "busy/alone-"+q.name)
				b.ReportMetric(float64(beside)/float64(fair), "nuisance/busy-"+q.name)
			}
			// What the server works on its tables, of the time in which it is a nuisance.
			share := float64(s.Seat.Guest.Stats().ShadowTime.Load()-shadows) / float64(time.Since(begin)/time.Duration(len(ways)))
			b.ReportMetric(share, "shadow-share")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const (
	turn  = 400 * time.Millisecond
	turns = 4
)

func quantile(list []time.Duration, q float64) time.Duration {
	slices.Sort(list)
	return list[int(float64(len(list)-1)*q)]
}

package neighbours

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/shadowpt"
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

// named is the nuisance of that name.
func named(t testing.TB, name string) nuisance {
	t.Helper()
	i := slices.IndexFunc(nuisances, func(n nuisance) bool { return n.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return nuisances[i]
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
		require.Empty(t, r.seat.Guest.QuarantineReason())
		for _, c := range r.seat.Guest.Stats().Counts() {
			if c.Rule || c.Name == "card_timeouts" {
				require.Zero(t, c.N, "%s: %s", r.seat.Guest.Name(), c.Name)
			}
		}
	}
}

// TestThrashIsBounded: no trap of a guest that has all its pages move brings more to its
// windows than the limit (limits.map-moves), nor sends more home; what is left is counted as
// deferred, and done by later traps.
func TestThrashIsBounded(t *testing.T) {
	const limit, rounds = 128, 6
	for _, c := range []struct {
		nuisance
		leave bool // pages go home
	}{{named(t, thrashes), false}, {named(t, comesAndGoes), true}} {
		t.Run(c.name, func(t *testing.T) {
			s := street(t, c.options, func(o *aggregator.Options) { o.Map.Moves = limit })
			thrasher, err := c.prepare(s.Nuisance)
			require.NoError(t, err)
			stats := &s.Seat.Guest.Stats().Mapped
			moved, traps, deferred := stats.PagesMoved.Load(), s.traps(), stats.Deferred.Load()
			stats.MostEntered.Store(0) // PRAMIN's moves are not put off
			stats.MostLeft.Store(0)
			live(t, s, func() error { return repeat(rounds, thrasher.do) })
			moved, traps, deferred = stats.PagesMoved.Load()-moved, s.traps()-traps, stats.Deferred.Load()-deferred
			entered, left := stats.MostEntered.Load(), stats.MostLeft.Load()
			t.Logf("%d pages moved in %d traps, %d in and %d out in the worst; %d put off", moved, traps, entered, left, deferred)
			require.GreaterOrEqual(t, moved, uint64(2*rounds-1)*thrashed>>12, "nothing thrashed")
			require.LessOrEqual(t, entered, int64(limit))
			require.LessOrEqual(t, left, int64(limit))
			require.NotZero(t, entered)
			require.Equal(t, c.leave, left != 0)
			require.NotZero(t, deferred)
			require.Zero(t, stats.MovesRefused.Load())
		})
	}
}

func (s *Street) traps() (n uint64) {
	for _, r := range s.Seat.Counted.Traps() {
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

// TestStormIsBounded: for a guest that writes, invalidates and submits without waiting,
// no more is done than its rate (limits.table-rate) and four times its share of table
// memory at once, and one scan. What is done is table_work; of that entries_rewritten are
// known to cost more than their bytes.
func TestStormIsBounded(t *testing.T) {
	const rate = 1 << 20
	n := named(t, storms)
	s := street(t, n.options, func(o *aggregator.Options) { o.TableRate = rate })
	storm, err := n.prepare(s.Nuisance)
	require.NoError(t, err)
	stats := s.Seat.Guest.Stats()
	begin := time.Now() // around the counts: whoever is late has more time, not more work
	work, rewritten, scans := stats.TableWork.Load(), stats.EntriesRewritten.Load(), stats.Scans.Load()
	invalidates := stats.Invalidates.Load()
	live(t, s, func() error {
		for held := false; !held || time.Since(begin) < 2*time.Second; held = stats.ThrottleTime.Load() > 0 {
			if err := storm.do(); err != nil || time.Since(begin) > 4*time.Minute {
				return err
			}
		}
		return nil
	})
	work, rewritten, scans = stats.TableWork.Load()-work, stats.EntriesRewritten.Load()-rewritten, stats.Scans.Load()-scans
	invalidates = stats.Invalidates.Load() - invalidates
	took := time.Since(begin)
	t.Logf("%d invalidates, %d scans, %d entries in %v, %d MiB of work, waited %v", invalidates, scans, rewritten, took, work>>20, time.Duration(stats.ThrottleTime.Load()))
	const scan = 4 << 20 // what one of this guest's tables comes to, and more
	require.LessOrEqual(t, work, uint64(rate*took.Seconds())+4*tables+scan)
	require.Greater(t, work, rewritten*8*4, "an entry that names memory costs more than to look at it")
	require.LessOrEqual(t, scans, invalidates+1)
	require.NotZero(t, stats.ThrottleTime.Load(), "it was never held back, which is what the test is about")
}

// TestBellsAreBounded: a doorbell is one bell (bells) and no more.
func TestBellsAreBounded(t *testing.T) {
	for _, name := range []string{rings, ringsScheduled, aliases} {
		t.Run(name, func(t *testing.T) {
			n := named(t, name)
			s := street(t, n.options, nil)
			ringer, err := n.prepare(s.Nuisance)
			require.NoError(t, err)
			stats := s.Seat.Guest.Stats()
			rung, before := uint64(0), stats.Doorbells.Load()
			live(t, s, func() error {
				for range 20 {
					if err := (counted{ringer, &rung}).do(); err != nil {
						return err
					}
				}
				return nil
			})
			require.Equal(t, rung, stats.Doorbells.Load()-before)
		})
	}
}

// counted counts the bells of a ringer.
type counted struct {
	pest
	rung *uint64
}

func (c counted) do() error {
	*c.rung += bells
	return c.pest.do()
}

// nobody is a nuisance that is not there.
type nobody struct{}

func (nobody) do() error {
	time.Sleep(turn / 8)
	return nil
}

// BenchmarkNeighbours measures what residents feel: how long their copies take beside
// each nuisance, as a ratio to the same beside a guest that reads a register all the
// time, and beside nobody. Where a guest can do the same and tell nobody, the ratio to that
// is what the server's part comes to. They take turns.
func BenchmarkNeighbours(b *testing.B) {
	type row struct {
		nuisance
		rate float64 // of work on tables; 0 is the default
	}
	var rows []row
	for _, n := range nuisances {
		rows = append(rows, row{n, 0})
	}
	for _, mib := range []int{32, 128, 512, 4096} { // what the limit is good for that bounds a storm
		held := named(b, storms)
		held.name += fmt.Sprintf(", %d MiB a second", mib)
		rows = append(rows, row{held, float64(mib << 20)})
	}
	for _, n := range rows {
		b.Run(n.name, func(b *testing.B) {
			s := street(b, n.options, func(o *aggregator.Options) { o.TableRate = n.rate })
			pest, err := n.prepare(s.Nuisance)
			require.NoError(b, err)
			ways := []way{{"alone", nobody{}, nil}, {"busy", reader{s.Nuisance}, nil}}
			if c, ok := pest.(*stormer); ok {
				ways = append(ways, way{"calm", c.calm(), nil})
			}
			ways = append(ways, way{"nuisance", pest, nil})
			shadows, begin := s.Seat.Guest.Stats().ShadowTime.Load(), time.Now()
			for b.Loop() {
				for range turns {
					for i := range ways {
						list, err := s.Live(during(turn, ways[i].pest))
						require.NoError(b, err)
						ways[i].took = append(ways[i].took, list...)
					}
				}
			}
			for _, q := range []struct {
				name string
				at   float64
			}{{"p50", 0.5}, {"p99", 0.99}} {
				beside := quantile(ways[len(ways)-1].took, q.at)
				b.ReportMetric(float64(quantile(ways[0].took, q.at).Microseconds()), "us-alone-"+q.name)
				for i := range ways[:len(ways)-1] {
					b.ReportMetric(float64(beside)/float64(quantile(ways[i].took, q.at)), "nuisance/"+ways[i].name+"-"+q.name)
				}
			}
			// What the server works on its tables, of the time in which it is a nuisance.
			share := float64(s.Seat.Guest.Stats().ShadowTime.Load()-shadows) / float64(time.Since(begin)/time.Duration(len(ways)))
			b.ReportMetric(share, "shadow-share")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// way is what residents live beside.
type way struct {
	name string
	pest
	took []time.Duration
}

const (
	turn  = 400 * time.Millisecond
	turns = 4
)

func quantile(list []time.Duration, q float64) time.Duration {
	slices.Sort(list)
	return list[int(float64(len(list)-1)*q)]
}

// BenchmarkTableWork shows how long a byte of table_work takes, by what is done: they
// are to be alike, for one rate (limits.table-rate) bounds them all.
func BenchmarkTableWork(b *testing.B) {
	for _, w := range []struct {
		name, options string
		stormer
	}{
		{"one entry in 16 tables", mapped, stormer{tables: 16, changed: 1}},
		{"all entries of a table", mapped, stormer{tables: 1, changed: shadowpt.SmallEntries}},
		{"all entries, of which none is valid", mapped, stormer{tables: 1, changed: shadowpt.SmallEntries, invalid: true}},
		{"one entry of each page, trapped", trapped, stormer{tables: 16, changed: 1024, apart: 512}},
		{"one entry of each page, trapped, as it was", trapped, stormer{tables: 16, changed: 1024, apart: 512, same: true}},
	} {
		b.Run(w.name, func(b *testing.B) {
			s := street(b, w.options, func(o *aggregator.Options) { o.TableRate = 1 << 40 })
			storm, err := newStorm(s.Nuisance, w.stormer)
			require.NoError(b, err)
			stats := s.Seat.Guest.Stats()
			work, took := stats.TableWork.Load(), stats.ShadowTime.Load()
			for b.Loop() {
				require.NoError(b, errors.Join(storm.do(), storm.ch.Finish()))
			}
			work, took = stats.TableWork.Load()-work, stats.ShadowTime.Load()-took
			b.ReportMetric(float64(took)/float64(work), "ns/byte")
			b.ReportMetric(float64(took)/float64(b.N), "ns-of-shadows/op")
			b.ReportMetric(float64(work)/float64(b.N), "bytes/op")
		})
	}
}

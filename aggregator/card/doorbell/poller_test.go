package doorbell

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// doors counts looks; each bell is a counter that somebody moves on.
type doors struct {
	watched atomic.Int64
	written atomic.Uint64
	seen    atomic.Uint64
	looks   atomic.Uint64
	took    time.Duration
}

func (d *doors) Look() (rang, watched int) {
	d.looks.Add(1)
	if d.took > 0 {
		time.Sleep(d.took)
	}
	w := int(d.watched.Load())
	if w == 0 {
		return 0, 0
	}
	if v := d.written.Load(); v != d.seen.Load() {
		d.seen.Store(v)
		rang = 1
	}
	return rang, w
}

func start(t testing.TB, p Pace, d *doors) (*Poller, *Stats) {
	t.Helper()
	s := new(Stats)
	l, err := New(p, d, s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, s
}

func eventually(t testing.TB, f func() bool) {
	t.Helper()
	require.Eventually(t, f, time.Minute, time.Millisecond)
}

// TestSleepsWithoutATimer: while nothing can be rung, nobody looks.
func TestSleepsWithoutATimer(t *testing.T) {
	d := new(doors)
	l, s := start(t, Pace{Slow: time.Millisecond}, d)
	eventually(t, func() bool { return s.Sleeps.Load() >= 1 })
	looks := d.looks.Load()
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, looks, d.looks.Load())

	d.watched.Store(1)
	d.written.Add(1)
	l.Wake()
	eventually(t, func() bool { return d.seen.Load() == 1 })

	d.watched.Store(0)
	eventually(t, func() bool { return s.Sleeps.Load() >= 2 }) // more, if the wake came as it went to sleep
	looks = d.looks.Load()
	time.Sleep(50 * time.Millisecond)
	require.LessOrEqual(t, d.looks.Load(), looks+1, "such a wake may have one more look")
}

// TestNoWakeIsLost: whoever is watched from now on is looked at, however the wake
// meets the poller's going to sleep.
func TestNoWakeIsLost(t *testing.T) {
	d := new(doors)
	l, _ := start(t, Pace{Fast: MinFast, Slow: MaxSlow}, d)
	for i := range 2000 {
		d.watched.Store(1)
		d.written.Add(1)
		l.Wake()
		for begin := time.Now(); d.seen.Load() != d.written.Load(); {
			require.Less(t, time.Since(begin), time.Minute, "round %d: nobody looked", i)
			runtime.Gosched() // on one processor, or the poller is waited for by 10 ms each time
		}
		d.watched.Store(0)
		if rand.IntN(2) == 0 {
			time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
		}
	}
}

// TestIdleLooks: a guest that does nothing is looked at every Slow, no more.
func TestIdleLooks(t *testing.T) {
	d := new(doors)
	d.watched.Store(1)
	l, s := start(t, Pace{Fast: 50 * time.Microsecond, Slow: 20 * time.Millisecond}, d)
	l.Wake()
	woken := s.Looks.Load()
	eventually(t, func() bool { return s.Looks.Load() >= woken+2 }) // it knows that it was
	time.Sleep(400 * time.Millisecond)                              // until the wait has grown
	begin := time.Now()
	before := s.Looks.Load()
	time.Sleep(500 * time.Millisecond)
	looks := s.Looks.Load() - before
	most := uint64(time.Since(begin)/(20*time.Millisecond)) + 1
	require.LessOrEqual(t, looks, most)
}

// TestWakesKeepToTheLoad: however often it is woken, a look is followed by the wait that
// leaves others their part of the processor.
func TestWakesKeepToTheLoad(t *testing.T) {
	d := &doors{took: time.Millisecond}
	d.watched.Store(1)
	begin := time.Now() // around the counts: whoever is late has more time, not more looks
	l, s := start(t, Pace{Load: 25}, d)
	for s.Looks.Load() <= 2 || time.Since(begin) < 300*time.Millisecond {
		l.Wake()
		time.Sleep(d.took / 10)
	}
	looks := s.Looks.Load()
	require.LessOrEqual(t, looks, uint64(time.Since(begin)/(4*d.took))+1)
}

// TestPaceChanges: a poller that waits follows a new pace at once.
func TestPaceChanges(t *testing.T) {
	d := new(doors)
	d.watched.Store(1)
	l, s := start(t, Pace{Fast: 500 * time.Millisecond, Slow: time.Second}, d)
	eventually(t, func() bool { return s.Looks.Load() > 0 })
	require.Error(t, Pace{Fast: 1}.Check())
	l.SetPace(Pace{Fast: 50 * time.Microsecond, Slow: 100 * time.Microsecond})
	eventually(t, func() bool { return s.Looks.Load() > 1000 })
}

func TestManyWake(t *testing.T) {
	d := new(doors)
	l, _ := start(t, Pace{}, d)
	var wakers sync.WaitGroup
	for range 4 {
		wakers.Go(func() {
			for range 10000 {
				d.watched.Store(int64(rand.IntN(2)))
				d.written.Add(1)
				l.Wake()
			}
		})
	}
	wakers.Wait()
	d.watched.Store(1)
	l.Wake()
	eventually(t, func() bool { return d.seen.Load() == d.written.Load() })
}

// TestLooksDoNotAllocate: what is done twenty thousand times a second makes no
// garbage.
func TestLooksDoNotAllocate(t *testing.T) {
	d := new(doors)
	d.watched.Store(1)
	l, s := start(t, Pace{Fast: MinFast, Slow: MinFast}, d)
	l.Wake()
	eventually(t, func() bool { return s.Looks.Load() > 100 })
	n := testing.AllocsPerRun(1, func() {
		from := s.Looks.Load()
		for s.Looks.Load() < from+500 {
			l.Wake()
		}
	})
	require.Less(t, n, 20.0)
}

// plain is cadence as its sentence says it.
func plain(p Pace, sinceRing, took time.Duration) time.Duration {
	wait := sinceRing / 8
	if wait < p.Fast {
		wait = p.Fast
	}
	if wait > p.Slow {
		wait = p.Slow
	}
	if p.Load == 0 {
		p.Load = 25
	}
	if rest := took * time.Duration(100-p.Load) / time.Duration(p.Load); wait < rest {
		wait = rest
	}
	return wait
}

// TestCadence holds waits against what they are said to be, and to their bounds.
func TestCadence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := func(name string, lo, hi int) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Microsecond
		}
		p := Pace{Fast: us("fast", 10, 1000)}
		p.Slow = p.Fast + us("slow", 0, 100000)
		p.Load = rapid.IntRange(0, 100).Draw(t, "load")
		require.NoError(t, p.Check())
		load := time.Duration(p.Load)
		if load == 0 {
			load = 25
		}
		var c cadence
		rang, now := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			took := us("took", 0, 30)
			found := rapid.IntRange(0, 9).Draw(t, "found") == 0
			now += took
			if found {
				rang = now
			}
			wait := c.next(p.withDefaults(), now, took, found)
			require.Equal(t, plain(p, now-rang, took), wait)
			require.LessOrEqual(t, took*100, (took+wait+1)*load, "more than its part of a processor")
			now += wait + us("late", 0, 200)
		}
	})
}

// TestReaction holds quantiles against sorted times.
func TestReaction(t *testing.T) {
	require.Zero(t, new(Stats).Reaction(0.5))
	rapid.Check(t, func(t *rapid.T) {
		var s Stats
		n := rapid.IntRange(1, 200).Draw(t, "n")
		most := time.Duration(0)
		for range n {
			d := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "d"))
			s.reacted(d, 1)
			most = max(most, d)
			require.Less(t, d, edge(bucket(d)))
			require.LessOrEqual(t, edge(bucket(d)), max(d+d/4+1, 5))
		}
		require.Equal(t, edge(bucket(most)), s.Reaction(1))
		require.LessOrEqual(t, s.Reaction(0.5), s.Reaction(0.99))
		require.EqualValues(t, n, s.Rings.Load())
	})
}

func TestModes(t *testing.T) {
	for _, m := range []Mode{Trap, Poll} {
		text, err := m.MarshalText()
		require.NoError(t, err)
		var back Mode
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, m, back)
	}
	var m Mode
	require.EqualError(t, m.UnmarshalText([]byte("pole")), `"pole" is no way to hear doorbells; say trap or poll`)
}

package shares

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hall(t *testing.T, p sched.Policy) *Hall {
	t.Helper()
	cfg := sched.Default()
	cfg.Policy = p
	return hallOf(t, &cfg)
}

func hallOf(t *testing.T, cfg *sched.Config) *Hall {
	t.Helper()
	h, err := NewHall(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func join(t *testing.T, h *Hall, name string, share sched.NodeConfig) *Player {
	t.Helper()
	p, err := h.Join(name, share)
	require.NoError(t, err)
	return p
}

// patience is how long is waited for what comes at all.
const patience = time.Minute

// backlog is how many pieces of work a guest keeps on the way, twice: more than the
// card does while the guest sleeps.
const backlog = 128

// play has players make requests of some pieces each while during runs.
func play(t *testing.T, players []*Player, pieces []int, during func()) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, len(players))
	for i, p := range players {
		wg.Go(func() { errs[i] = p.Play(pieces[i], (backlog+pieces[i]-1)/pieces[i], stop.Load) })
	}
	during()
	stop.Store(true)
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err, "guest %d", i)
	}
}

// tolerance of shares, in thousandths: what a guest may have saved before, and some
// requests at either end of the time that is looked at.
const tolerance = 100

// attempts is how often shares may come out wrong before they are. The card's time is the
// clock's: for whom it works while the machine stands still has that time, and who looks
// right after it finds that the others have not had theirs yet. A policy that shares in
// another way is far off each time.
const attempts = 5

// shared has players contend until their shares, in thousandths, are those that are wanted.
func shared(t *testing.T, h *Hall, players []*Player, pieces []int, want ...float64) {
	t.Helper()
	for try := 1; ; try++ {
		got, idle := contend(t, h, players, pieces)
		cfg, _ := h.Agg.Schedule()
		if near(cfg.Policy, got, idle, want) {
			return
		}
		require.Less(t, try, attempts, "%.0f are wanted, these came last: %.0f; idle for %.0f of 1000", want, got, idle)
	}
}

// idlest is how much of the time, in thousandths, the card may be idle for shares of slices to
// say anything: beside that the worst policy is as near.
const idlest = 500

// near reports whether shares are those that a policy is to make.
func near(p sched.Policy, got []float64, idle float64, want []float64) bool {
	worst := 0.0
	for i := range want {
		worst = max(worst, math.Abs(got[i]-want[i]))
	}
	if p != sched.Timeslice {
		return worst <= tolerance
	}
	return idle <= idlest && worst <= tolerance+idle/2 // by the clock: what lies between requests is in their slices
}

// atWork is how much of the time the card works in a stretch that tells a cap from none.
const atWork = 0.7

// contend gives players work that lasts, and returns what each got, in thousandths,
// of the time in which all had some waiting in their rings: no guest has to be awake
// for that. Idle is how much of that time, in thousandths, the card did not work.
func contend(t *testing.T, h *Hall, players []*Player, pieces []int) (out []float64, idle float64) {
	t.Helper()
	const work = 2000 // pieces of each
	for i, p := range players {
		for range min(work/pieces[i], 1000) {
			require.NoError(t, p.Request(p.Ch, pieces[i]))
		}
	}
	began := time.Now()
	before, backlogged := h.Used(players)
	require.True(t, backlogged, "the first has ended before the last began")
	after, ended := before, began
	for backlogged {
		time.Sleep(2 * time.Millisecond)
		var now []time.Duration
		if now, backlogged = h.Used(players); backlogged {
			after, ended = now, time.Now()
		}
	}
	all := time.Duration(0)
	for i := range players {
		all += after[i] - before[i]
	}
	require.Greater(t, all, 100*time.Millisecond)
	for i := range players {
		out = append(out, 1000*float64(after[i]-before[i])/float64(all))
	}
	idle = max(0, 1000-1000*float64(all)/float64(ended.Sub(began)))
	t.Logf("shares %.1f of 1000, of %v; idle for %.0f of 1000", out, all, idle)
	for _, p := range players {
		require.NoError(t, p.Ch.Finish())
		p.ended.Store(p.sent.Load())
	}
	return out, idle
}

// Equal guests get equal shares whatever the length of their requests, under every
// policy that shares. By turns alone the first would have 923 of 1000.
func TestEqualShares(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band, sched.Timeslice, sched.DFQ} {
		t.Run(p.String(), func(t *testing.T) {
			h := hall(t, p)
			players := []*Player{join(t, h, "long", sched.NodeConfig{}), join(t, h, "short", sched.NodeConfig{})}
			shared(t, h, players, []int{24, 2}, 500, 500)
			checkBooks(t, h, players)
		})
	}
	t.Run("control", func(t *testing.T) { // who shares otherwise is seen, however idle the card may be
		h := hall(t, sched.FIFO)
		players := []*Player{join(t, h, "long", sched.NodeConfig{}), join(t, h, "short", sched.NodeConfig{})}
		got, _ := contend(t, h, players, []int{24, 2})
		for _, p := range []sched.Policy{sched.Credit, sched.Timeslice} {
			require.False(t, near(p, got, idlest, []float64{500, 500}), "%s: %.0f", p, got)
		}
	})
}

// Shares follow weights, and weights that were changed.
func TestWeights(t *testing.T) {
	h := hall(t, sched.Credit)
	var players []*Player
	for i, w := range []int{100, 200, 400} {
		players = append(players, join(t, h, fmt.Sprint("g", i), sched.NodeConfig{Weight: w}))
	}
	pieces := []int{3, 16, 5}
	shared(t, h, players, pieces, 1000./7, 2000./7, 4000./7)
	require.NoError(t, players[0].Guest.SetShare(sched.NodeConfig{Weight: 400}))
	require.NoError(t, players[2].Guest.SetShare(sched.NodeConfig{Weight: 100}))
	shared(t, h, players, pieces, 4000./7, 2000./7, 1000./7)
	checkBooks(t, h, players)
}

// checkBooks holds the ledger against what was submitted: all entries were taken on,
// all have ended, and each node has what its children have.
func checkBooks(t *testing.T, h *Hall, players []*Player) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, e := range h.Agg.Ledger() {
			for i := range e.Accounts {
				if e.Waiting[i] != 0 || e.Inflight[i] != 0 || e.Accounts[i].Busy < 0 {
					return false
				}
			}
		}
		return true
	}, patience, 10*time.Millisecond)
	ledger := h.Agg.Ledger()
	for n, e := range ledger {
		if e.Kind == sched.Channel {
			continue
		}
		for i := range e.Accounts {
			sum := e.Past[i]
			for _, c := range ledger[n+1:] {
				if c.Depth <= e.Depth {
					break
				}
				if c.Depth == e.Depth+1 {
					sum.Busy += c.Accounts[i].Busy
					sum.Entries += c.Accounts[i].Entries
					sum.Done += c.Accounts[i].Done
				}
			}
			require.Equal(t, sum.Busy, e.Accounts[i].Busy, e.Name)
			require.Equal(t, sum.Entries, e.Accounts[i].Entries, e.Name)
			require.Equal(t, sum.Done, e.Accounts[i].Done, e.Name)
		}
	}
	c := h.Agg.ScheduleCounts()
	require.Zero(t, c.UnknownWork, "%+v", c)
	require.Zero(t, c.UnknownChannel, "%+v", c)
	for _, p := range players {
		require.Equal(t, p.sent.Load(), p.ended.Load(), p.Guest.Name())
		var done, entries, dropped int64
		for _, e := range ledger {
			if e.Depth == 1 && e.Name == p.Guest.Name() {
				for _, a := range e.Accounts {
					done, entries, dropped = done+a.Done, entries+a.Entries, dropped+a.Dropped
				}
			}
		}
		require.Equal(t, entries, done+dropped, p.Guest.Name())
		require.GreaterOrEqual(t, done, int64(p.sent.Load()), p.Guest.Name())
	}
}

// launches is how many copies the card has begun.
func launches(h *Hall) uint64 { return h.Card.Stats().Engine.Class(classM2MF).Launches.Load() }

// While eight guests run, policy, weights and caps change all the time. Each guest's
// fences count what it submitted, and the card has done it once.
func TestLiveChanges(t *testing.T) {
	h := hall(t, sched.Credit)
	var players []*Player
	var pieces []int
	for i := range 8 {
		players = append(players, join(t, h, fmt.Sprint("g", i), sched.NodeConfig{}))
		pieces = append(pieces, 1+i*3)
	}
	before := launches(h)
	play(t, players, pieces, func() {
		for round := range 60 {
			cfg := sched.Default()
			cfg.Policy = sched.None + sched.Policy(round)%(sched.DFQ-sched.None+1)
			cfg.Hierarchy = sched.Hierarchy(round / 7 % 3)
			require.NoError(t, h.Agg.SetSchedule(cfg))
			g := players[round%len(players)].Guest
			require.NoError(t, g.SetShare(sched.NodeConfig{Weight: 1 + round*13, Cap: round % 3 * 300, Priority: round % 2}))
			time.Sleep(50 * time.Millisecond)
		}
	})
	checkBooks(t, h, players)
	want := uint64(0)
	for i, p := range players {
		want += p.sent.Load() * uint64(pieces[i])
	}
	require.Equal(t, want, launches(h)-before, "lost, or done twice")
}

// While eight guests have work, a change of weights and caps is a change of shares
// within a second of the card's own time.
func TestSharesFollow(t *testing.T) {
	h := hall(t, sched.Credit)
	var players []*Player
	for i := range 8 {
		players = append(players, join(t, h, fmt.Sprint("g", i), sched.NodeConfig{}))
	}
	// The first one's part in thousandths of what the card did, and how much of the time
	// the card was at work.
	stretch := func() (part, busy float64) {
		began := time.Now()
		before, backlogged := h.Used(players)
		for {
			require.True(t, backlogged, "the work does not last")
			time.Sleep(2 * time.Millisecond)
			var now []time.Duration
			now, backlogged = h.Used(players)
			all := time.Duration(0)
			for i := range now {
				all += now[i] - before[i]
			}
			if all > 100*time.Millisecond {
				return 1000 * float64(now[0]-before[0]) / float64(all), float64(all) / float64(time.Since(began))
			}
		}
	}
	// follows changes the first one's share, and says what came of it, stretch by stretch,
	// and whether it came to what is wanted and stayed. A cap is of the time, whether or not the
	// card is at work in all of it. Where the card is idle for long nobody could tell a cap from
	// none, so only stretches count in which who has none gets more than is wanted, by far. What
	// a cap saves, 15 ms, may come in any of them, so a single one is held less tightly; the
	// mean has to keep to it, for who has none passes what it is on his way.
	follows := func(share sched.NodeConfig, want float64, capped bool, most int) (seen []string, ok bool) {
		for i, p := range players {
			for range 400 {
				require.NoError(t, p.Request(p.Ch, 3))
			}
			if i == 0 { // who may get half of the card
				for range 600 {
					require.NoError(t, p.Request(p.Ch, 3))
				}
			}
		}
		require.NoError(t, players[0].Guest.SetShare(share))
		const least = 4
		near, mean := 50., 50.
		if capped {
			near = 75
		}
		good, count, sum := 0, 0, 0.0
		for len(seen) < most && !ok {
			part, busy := stretch()
			if capped {
				part *= busy
			}
			seen = append(seen, fmt.Sprintf("%.0f (busy for %.0f)", part, 1000*busy))
			if capped && busy <= atWork {
				continue
			}
			if count, sum = count+1, sum+part; math.Abs(want-part) <= near {
				good++
			} else {
				good = 0
			}
			ok = good >= 2 && (!capped || count >= least && sum <= float64(count)*(want+mean))
		}
		for _, p := range players {
			require.NoError(t, p.Ch.Finish())
			p.ended.Store(p.sent.Load())
		}
		return seen, ok
	}
	before := sched.NodeConfig{}
	for _, c := range []struct {
		share  sched.NodeConfig
		want   float64 // of what the card does, or of the time
		capped bool
	}{
		{sched.NodeConfig{}, 125, false},
		{sched.NodeConfig{Weight: 700}, 500, false},
		{sched.NodeConfig{Weight: 100}, 125, false},
		{sched.NodeConfig{Weight: 700, Cap: 250}, 250, true},
	} {
		for try := 1; ; try++ {
			seen, ok := follows(c.share, c.want, c.capped, 10)
			t.Logf("%+v: %s", c.share, seen)
			if ok {
				break
			}
			require.Less(t, try, attempts, "%+v: %.0f thousandths are wanted, these came: %s", c.share, c.want, seen)
			require.NoError(t, players[0].Guest.SetShare(before)) // and again
		}
		before = c.share
	}
	// The control: who has no cap is seen. He uses up his work fast.
	seen, ok := follows(sched.NodeConfig{Weight: 700}, 250, true, 5)
	require.False(t, ok, "without a cap: %s", seen)
	t.Logf("without a cap: %s", seen)
	checkBooks(t, h, players)
}

// A request that does not end is the end of its channel. Its guest's other channel
// and the other guest go on.
func TestRunaway(t *testing.T) {
	cfg := sched.Default()
	cfg.Watchdog.Limit, cfg.Watchdog.Grace = 200*time.Millisecond, 500*time.Millisecond
	h := hallOf(t, &cfg)
	bad, good := join(t, h, "bad", sched.NodeConfig{}), join(t, h, "good", sched.NodeConfig{})
	other, err := bad.Channel(2)
	require.NoError(t, err)
	play(t, []*Player{good}, []int{4}, func() {
		// A long list of long copies: seconds of work in one entry.
		require.NoError(t, bad.runaway(bad.Ch))
		begin := time.Now()
		var stopped *guest.ChannelError
		require.ErrorAs(t, bad.Ch.Finish(), &stopped)
		t.Logf("ended after %v", time.Since(begin))
		require.Equal(t, 1, stopped.Fault.Channel)
		n := good.ended.Load()
		require.NoError(t, bad.Request(other, 1))
		require.NoError(t, other.Finish())
		require.Eventually(t, func() bool { return good.ended.Load() > n+100 }, patience, 10*time.Millisecond)
	})
	require.Equal(t, uint64(1), bad.Guest.Stats().Runaways.Load())
	require.Zero(t, good.Guest.Stats().Runaways.Load())
	require.Empty(t, bad.Guest.SafeMode())
	require.Equal(t, uint64(1), h.Agg.ScheduleCounts().Runaways)
	require.NoError(t, bad.Ch.Close())
	again, err := bad.Channel(1)
	require.NoError(t, err)
	require.NoError(t, bad.Request(again, 1))
	require.NoError(t, again.Finish())
}

// A channel that waits for a semaphore stands in nobody's way, not even when the one
// that is to release it has to wait for its turn.
func TestSemaphore(t *testing.T) {
	for p := sched.None; p <= sched.DFQ; p++ {
		t.Run(p.String(), func(t *testing.T) {
			h := hall(t, p)
			a, b := join(t, h, "a", sched.NodeConfig{}), join(t, h, "b", sched.NodeConfig{})
			second, err := a.Channel(2)
			require.NoError(t, err)
			play(t, []*Player{b}, []int{4}, func() {
				for i := range uint32(20) {
					require.NoError(t, a.Ch.Submit(new(guest.Push).Semaphore(dstVA+piece-64, i+1, guest.SemAcquire).Words...))
					require.NoError(t, a.Request(a.Ch, 1))
					time.Sleep(2 * time.Millisecond)
					require.NoError(t, second.Submit(new(guest.Push).Semaphore(dstVA+piece-64, i+1, guest.SemRelease).Words...))
					require.NoError(t, a.Ch.Finish())
				}
			})
		})
	}
}

// A guest whose work waits for its turn is answered like any other (R-A10): its doorbells
// and its reads of registers do not wait with it.
func TestGatedGuestIsAnswered(t *testing.T) {
	cfg := sched.Default()
	cfg.Ahead, cfg.Watchdog.Limit, cfg.Watchdog.Grace = 0, 0, time.Millisecond
	h := hallOf(t, &cfg)
	hog, gated := join(t, h, "hog", sched.NodeConfig{}), join(t, h, "gated", sched.NodeConfig{})
	require.NoError(t, hog.runaway(hog.Ch))
	require.Eventually(t, func() bool {
		for _, e := range h.Agg.Ledger() {
			if e.Name == "hog" {
				return e.Inflight[0]+e.Inflight[1]+e.Inflight[2] > 0
			}
		}
		return false
	}, patience, time.Millisecond)
	books := func() (waiting int, done int64) {
		for _, e := range h.Agg.Ledger() {
			if e.Name == "gated" {
				for i, a := range e.Accounts {
					waiting, done = waiting+e.Waiting[i], done+a.Done
				}
			}
		}
		return waiting, done
	}
	_, before := books()
	const many = 200
	for range many {
		require.NoError(t, gated.Request(gated.Ch, 1))
		require.NoError(t, gated.G.Service()) // reads the interrupt registers
	}
	waiting, done := books()
	require.GreaterOrEqual(t, waiting, many, "it was not gated, so nothing is shown")
	require.Equal(t, before, done, "the hog has ended, so nothing is shown")
	cfg.Watchdog.Limit = 20 * time.Millisecond
	require.NoError(t, h.Agg.SetSchedule(cfg))
	require.NoError(t, gated.Ch.Finish())
	var stopped *guest.ChannelError
	require.ErrorAs(t, hog.Ch.Finish(), &stopped)
}

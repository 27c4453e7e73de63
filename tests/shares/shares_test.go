package shares

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/tests/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contend gives each client work that waits for an endless request, calls change, and
// removes that request. It returns each client's part, in thousandths, of the time while
// all had work waiting. Each client's work is some 400 ms, in requests of the given
// lengths.
func contend(t *testing.T, s *server, clients []*client, lengths []time.Duration, change func()) (shares []float64) {
	t.Helper()
	const work = 400 * time.Millisecond
	var lines []uint32
	for i, c := range clients {
		lines = append(lines, s.lines(c, lengths[i]))
	}
	release := s.occupy()
	for i, c := range clients {
		for range work / lengths[i] {
			c.request(lines[i])
		}
	}
	change()
	before := s.used(clients...)
	release()
	after := before
	for backlogged := true; backlogged; time.Sleep(time.Millisecond) {
		var now []time.Duration
		for _, c := range clients {
			a, waiting, _ := s.account(c)
			now, backlogged = append(now, a.Busy), backlogged && waiting > 0
		}
		if backlogged {
			after = now
		}
	}
	all := time.Duration(0)
	for i, c := range clients {
		all += after[i] - before[i]
		c.finish()
	}
	for i := range clients {
		shares = append(shares, 1000*float64(after[i]-before[i])/float64(max(all, 1)))
	}
	t.Logf("shares %.0f of %v", shares, all)
	return shares
}

// near reports whether shares differ from the wanted ones by at most a fifth of the card.
// Requests cannot be cut in two, and one that was on the card while the machine did something
// else is charged with that time. Package sched/model checks how exact shares are.
func near(got, want []float64) bool {
	for i := range want {
		if math.Abs(got[i]-want[i]) > 200 {
			return false
		}
	}
	return true
}

// attempts is how often shares may be wrong before the test fails. A machine that stops
// this process for long makes single figures wrong; a wrong policy makes all wrong.
const attempts = 8

func requireShares(t *testing.T, want []float64, measure func() []float64) {
	t.Helper()
	for try := 1; ; try++ {
		got := measure()
		if near(got, want) {
			return
		}
		require.Less(t, try, attempts, "shares %.0f, not %.0f", got, want)
	}
}

// Two guests get equal shares although the requests of one are eight times as long, and
// shares follow weights that change while work waits. Without shares, in the order
// of submission, the first gets everything.
func TestSharesFollowWeights(t *testing.T) {
	lengths := []time.Duration{8 * time.Millisecond, time.Millisecond}
	fermi, hopper := []rig.Chip{rig.Fermi}, []rig.Chip{rig.Hopper}
	for _, c := range []struct {
		chips   []rig.Chip
		card    string
		policy  sched.Policy
		weights []int
		want    []float64
	}{
		{fermi, "meter", sched.Credit, []int{100, 100}, []float64{500, 500}},
		{hopper, "meter", sched.Credit, []int{100, 300}, []float64{250, 750}},
		{both, "meter", sched.Credit, []int{300, 100}, []float64{750, 250}},
		{fermi, "own spaces", sched.Credit, []int{100, 300}, []float64{250, 750}},
		{both, "slow spaces", sched.Credit, []int{300, 100}, []float64{750, 250}},
		{fermi, "no meter", sched.Credit, []int{100, 300}, []float64{250, 750}},
		{fermi, "meter", sched.FIFO, []int{100, 100}, nil},
	} {
		t.Run(fmt.Sprintf("%d %s %s %v", len(c.chips), c.chips[0].Device.Name(), c.card, c.policy), func(t *testing.T) {
			measure := func() []float64 {
				s := newServer(t, cards[c.card], sched.Default())
				s.chips = c.chips
				clients := []*client{s.add("long", sched.NodeConfig{}), s.add("short", sched.NodeConfig{})}
				got := contend(t, s, clients, lengths, func() {
					require.NoError(t, s.Agg.SetSchedule(withPolicy(c.policy)))
					for i, w := range c.weights {
						require.NoError(t, clients[i].GPU.SetShare(sched.NodeConfig{Weight: w}))
					}
				})
				checkLedger(t, s)
				checkMeter(t, s)
				return got
			}
			if c.want == nil { // the control
				require.False(t, near(measure(), []float64{500, 500}))
				return
			}
			requireShares(t, c.want, measure)
		})
	}
}

// checkLedger compares the ledger with the submissions: everything has ended and each node
// has the sum of its children.
func checkLedger(t *testing.T, s *server) {
	t.Helper()
	require.Eventually(t, s.idle, timeout, time.Millisecond)
	require.NoError(t, model.CheckLedger(s.Agg.Ledger()))
	for _, c := range s.clients {
		a, _, _ := s.account(c)
		require.Equal(t, a.Entries, a.Done+a.Dropped, c.GPU.Name())
		require.GreaterOrEqual(t, a.Done+a.Dropped, int64(c.sent), c.GPU.Name())
	}
}

// checkMeter compares what channels were charged for with what the card itself counted. The driver's
// meter charges for the time until it notices an end.
func checkMeter(t *testing.T, s *server) {
	t.Helper()
	for id := range uint32(len(s.clients)) {
		own, got := s.Card.Use(id), s.Driver.Meter().Use(id)
		require.Equal(t, own.Ended, got.Ended)
		for e, busy := range own.Busy {
			require.GreaterOrEqual(t, got.Busy[e], busy*3/4)
			require.LessOrEqual(t, got.Busy[e], busy*3/2+time.Duration(own.Ended)*time.Millisecond)
		}
	}
}

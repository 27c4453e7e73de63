package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
)

// TestLedger: the scheduler's entries become a tree of their depths. What waits and what is on the card
// are sums over the engines; children that have ended are there if they did something.
func TestLedger(t *testing.T) {
	entry := func(depth int, name string, weight, ended int) sched.Entry {
		e := sched.Entry{Depth: depth, Name: name, Weight: weight}
		for i := range 3 {
			e.Waiting, e.Inflight = append(e.Waiting, i), append(e.Inflight, 1)
			e.Accounts = append(e.Accounts, sched.Account{Requests: int64(weight + i)})
			e.Past = append(e.Past, sched.Account{Requests: int64(i * ended)})
			e.Debt = append(e.Debt, time.Duration(i))
		}
		return e
	}
	entries := []sched.Entry{
		entry(0, "", 0, 0), entry(1, "a", 300, 1), entry(2, "kernel", 100, 0), entry(3, "channel 1", 0, 0), entry(3, "channel 2", 0, 0),
		entry(2, "space-0x1000", 100, 0), entry(1, "b", 50, 0),
	}
	entries[6].Block = sched.Stopped | sched.Dying
	card, rest := ledgerOf(entries)
	require.Empty(t, rest)
	require.Equal(t, []string{"card", "card"}, []string{card.Kind, card.Name})
	var names []string
	var list func(n *api.LedgerNode)
	list = func(n *api.LedgerNode) {
		names = append(names, n.Kind+" "+n.Name)
		for i := range n.Children {
			list(&n.Children[i])
		}
	}
	list(&card)
	require.Equal(t, []string{"card card", "guest a", "group kernel", "channel channel 1", "channel channel 2", "group space-0x1000", "guest b"}, names)
	a, b := &card.Children[0], &card.Children[1]
	require.Equal(t, []int{300, 3, 3}, []int{a.Weight, a.Waiting, a.OnCard})
	require.Equal(t, api.EngineAccount{Engine: "copy 1", Account: sched.Account{Requests: 302}, Debt: 2}, a.Engines[2])
	require.EqualValues(t, 3, api.Total(a.Ended).Requests)
	require.Nil(t, b.Ended)
	require.Equal(t, "stopped: its request runs for too long; ends with its request", b.Blocked)
}

package serve

import (
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
)

// ledgerKinds are the levels of the scheduler's tree, from the card down.
var ledgerKinds = [...]string{"card", "guest", "group", "channel"}

// treeOf is the account of the card's time; nil without a scheduler.
func treeOf(ledger []sched.Entry) *api.LedgerNode {
	if len(ledger) == 0 {
		return nil
	}
	root, _ := ledgerOf(ledger)
	return &root
}

// cardTime is the account of a virtual GPU, without what is below it; nil without a scheduler.
func cardTime(ledger []sched.Entry, name string) *api.LedgerNode {
	i := slices.IndexFunc(ledger, func(n sched.Entry) bool { return n.Depth == 1 && n.Name == name })
	if i < 0 {
		return nil
	}
	n, _ := ledgerOf(ledger[i : i+1])
	n.Ended = nil
	return &n
}

// ledgerOf makes a node of the first entry, with all below it, and returns the rest.
func ledgerOf(entries []sched.Entry) (api.LedgerNode, []sched.Entry) {
	e := &entries[0]
	n := api.LedgerNode{
		Kind: ledgerKinds[e.Depth], Name: e.Name, Weight: e.Weight, Blocked: blocked(e.Block),
		Engines: accountsOf(e.Accounts), Ended: accountsOf(e.Past),
	}
	if e.Depth == 0 {
		n.Name = ledgerKinds[0]
	}
	none := true
	for i := range n.Engines {
		n.Engines[i].Debt = e.Debt[i]
		n.Waiting += e.Waiting[i]
		n.OnCard += e.Inflight[i]
		none = none && e.Past[i] == sched.Account{}
	}
	if none {
		n.Ended = nil
	}
	rest := entries[1:]
	for len(rest) > 0 && rest[0].Depth > e.Depth {
		var child api.LedgerNode
		child, rest = ledgerOf(rest)
		n.Children = append(n.Children, child)
	}
	return n, rest
}

func accountsOf(accounts []sched.Account) (out []api.EngineAccount) {
	for i, a := range accounts {
		out = append(out, api.EngineAccount{Engine: card.Engine(i).String(), Account: a})
	}
	return out
}

var blocks = [...]struct {
	sched.Block
	text string
}{
	{sched.Stopped, "stopped: its request runs for too long"},
	{sched.Quarantined, "quarantined: its requests do not end"}, {sched.Dying, "ends with its request"},
}

func blocked(b sched.Block) string {
	var out []string
	for _, k := range blocks {
		if b&k.Block != 0 {
			out = append(out, k.text)
		}
	}
	return strings.Join(out, "; ")
}

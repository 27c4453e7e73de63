package serve

import (
	"strings"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// LedgerNode is the card, a guest, one of its groups or a channel in the books of
// who had how much of the card's time. What it had is the sum of what its children
// had and of what those had that are gone.
type LedgerNode struct {
	Kind     string          `json:"kind"` // one of LedgerKinds
	Name     string          `json:"name"`
	Weight   int             `json:"weight"`
	Blocked  string          `json:"blocked,omitempty"` // why it gets no turns, if it does not
	Waiting  int             `json:"waiting"`           // entries, now
	OnCard   int             `json:"on_card"`           // entries, now
	Engines  []EngineAccount `json:"engines"`
	Gone     []EngineAccount `json:"gone,omitempty"` // of children that have ended
	Children []LedgerNode    `json:"children,omitempty"`
}

// EngineAccount is what a node had of an engine.
type EngineAccount struct {
	Engine string `json:"engine"`
	sched.Account
	Debt int64 `json:"debt_ns"` // time that it is ahead of its share; below zero, that it is owed
}

// LedgerKinds are the levels of the ledger, from the card down.
var LedgerKinds = [...]string{"card", "guest", "group", "channel"}

// Ledger is the books until now; nil without a scheduler.
func (s *Shared) Ledger() *LedgerNode {
	entries := s.agg.Ledger()
	if len(entries) == 0 {
		return nil
	}
	root, _ := ledgerOf(entries)
	return &root
}

// ledgerOf makes a node of the first entry, with all below it, and returns the rest.
func ledgerOf(entries []sched.Entry) (LedgerNode, []sched.Entry) {
	e := &entries[0]
	n := LedgerNode{Kind: LedgerKinds[e.Depth], Name: e.Name, Weight: e.Weight, Blocked: blocked(e.Block), Engines: accountsOf(e.Accounts), Gone: accountsOf(e.Past)}
	if e.Depth == 0 {
		n.Name = LedgerKinds[0]
	}
	none := true
	for i := range n.Engines {
		n.Engines[i].Debt = int64(e.Debt[i])
		n.Waiting += e.Waiting[i]
		n.OnCard += e.Inflight[i]
		none = none && e.Past[i] == sched.Account{}
	}
	if none {
		n.Gone = nil
	}
	rest := entries[1:]
	for len(rest) > 0 && rest[0].Depth > e.Depth {
		var child LedgerNode
		child, rest = ledgerOf(rest)
		n.Children = append(n.Children, child)
	}
	return n, rest
}

func accountsOf(accounts []sched.Account) (out []EngineAccount) {
	for i, name := range aggregator.LedgerEngines() {
		out = append(out, EngineAccount{Engine: name, Account: accounts[i]})
	}
	return out
}

var blocks = [...]struct {
	sched.Block
	text string
}{
	{sched.Paused, "paused"}, {sched.Stopped, "stopped: its request runs for too long"},
	{sched.Quarantined, "quarantined: its requests do not end"}, {sched.Dying, "ends when its request has"},
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

// Sum is what accounts of several engines come to.
func Sum(accounts []EngineAccount) (out sched.Account) {
	for i := range accounts {
		out.Add(&accounts[i].Account)
	}
	return out
}

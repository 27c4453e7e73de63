package sched

import "time"

// Account is a node's use of an engine. At any instant it is the sum of the accounts of its
// present and former children.
type Account struct {
	Busy     time.Duration `json:"busy_ns" help:"Time that the engine worked for it."`
	Wait     time.Duration `json:"wait_ns" help:"Time that its entries waited, summed over the entries; raise its weight if this is too long."`
	Overrun  time.Duration `json:"overrun_ns" help:"Time that it held the card beyond its slice, because its requests are longer than a slice."`
	Requests int64         `json:"requests" help:"Doorbells submitted."`
	Entries  int64         `json:"entries" help:"Ring entries that these added."`
	Held     int64         `json:"held" help:"Entries that were not forwarded to the card at once."`
	Done     int64         `json:"done" help:"Entries that are done."`
	Dropped  int64         `json:"dropped" help:"Entries that were aborted or removed."`
	Last     time.Duration `json:"last_ns" metric:"-" help:"Time on the scheduler's clock when the last entry was done."`
}

// Add sums up.
func (a *Account) Add(b *Account) {
	a.Busy += b.Busy
	a.Wait += b.Wait
	a.Overrun += b.Overrun
	a.Requests += b.Requests
	a.Entries += b.Entries
	a.Held += b.Held
	a.Done += b.Done
	a.Dropped += b.Dropped
	a.Last = max(a.Last, b.Last)
}

// book adds to the accounts of a channel and of all above it.
func (s *State) book(c int32, e int, a Account) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Account.Add(&a)
	}
}

// account brings Wait up to date. It must be called before a lane's number of waiting
// entries changes, for all nodes on the way up at the same time.
func (l *Lane) account(now time.Duration) *Account {
	l.Account.Wait += time.Duration(l.Waiting) * (now - l.Counted)
	l.Counted = now
	return &l.Account
}

// Account returns a node's use of an engine until now.
func (s *State) Account(now time.Duration, id ID, engine int) (Account, bool) {
	n := s.find(id)
	if n == none || engine < 0 || engine >= len(s.Engines) {
		return Account{}, false
	}
	s.advance(now)
	return *s.Nodes[n].Lanes[engine].account(s.Now), true
}

// Entry is a node in the ledger, with its children after it.
type Entry struct {
	ID       ID              `json:"-"`
	Name     string          `json:"name"`
	Kind     Kind            `json:"kind"`
	Depth    int             `json:"depth"`
	Weight   int             `json:"weight"`
	Block    Block           `json:"block,omitempty"`
	Waiting  []int           `json:"waiting"`
	Inflight []int           `json:"inflight"`
	Accounts []Account       `json:"accounts"`       // by engine
	Past     []Account       `json:"past,omitempty"` // of children that are gone
	Debt     []time.Duration `json:"debt_ns"`        // time by which it is ahead of its share
}

// Ledger returns every node, parents before their children, siblings in the order in which
// they were made.
func (s *State) Ledger(now time.Duration) []Entry {
	s.advance(now)
	var out []Entry
	s.walk(root, 0, func(n int32, depth int) {
		node := &s.Nodes[n]
		e := Entry{ID: s.id(n), Name: node.Config.Name, Kind: node.Kind, Depth: depth, Weight: node.Config.Weight, Block: node.Block}
		for i := range node.Lanes {
			l := &node.Lanes[i]
			e.Waiting = append(e.Waiting, l.Waiting)
			e.Inflight = append(e.Inflight, l.Inflight)
			e.Accounts = append(e.Accounts, *l.account(s.Now))
			e.Past = append(e.Past, l.Past)
			e.Debt = append(e.Debt, s.debt(n, i))
		}
		out = append(out, e)
	})
	return out
}

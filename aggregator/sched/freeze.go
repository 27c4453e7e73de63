package sched

import (
	"fmt"
	"slices"
)

// Freeze copies the state. The scheduler continues.
func (s *Scheduler) Freeze() *State {
	c := s.State
	c.Nodes = slices.Clone(s.Nodes)
	for i := range c.Nodes {
		c.Nodes[i].Lanes = slices.Clone(c.Nodes[i].Lanes)
		c.Nodes[i].Chan.Batches = slices.Clone(c.Nodes[i].Chan.Batches)
	}
	c.Unused, c.Alerts, c.Engines = slices.Clone(s.Unused), slices.Clone(s.Alerts), slices.Clone(s.Engines)
	for i := range c.Engines {
		c.Engines[i].DFQ.Order = slices.Clone(c.Engines[i].DFQ.Order)
	}
	return &c
}

// Restore makes a scheduler that continues from a frozen state. It takes over the state.
func Restore(st *State) (*Scheduler, error) {
	if st.Version != StateVersion {
		return nil, &Error{"version", fmt.Sprint(st.Version), fmt.Sprintf("must be %d", StateVersion)}
	}
	if err := st.Config.Check(); err != nil {
		return nil, err
	}
	if err := st.check(); err != nil {
		return nil, err
	}
	s := &Scheduler{State: *st}
	s.resume()
	return s, nil
}

// check reports whether the parts of a state fit together, as far as the scheduler's own
// safety depends on it.
func (st *State) check() error {
	bad := func(what string, v any) error {
		return &Error{what, fmt.Sprint(v), "does not fit the rest of the state"}
	}
	link := func(n int32) bool { return n >= none && int(n) < len(st.Nodes) }
	if len(st.Engines) < 1 || len(st.Engines) > MaxEngines {
		return bad("engines", len(st.Engines))
	}
	if len(st.Nodes) == 0 || st.Nodes[root].Kind != Inner || st.Nodes[root].Parent != none {
		return bad("nodes", len(st.Nodes))
	}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if n.Kind == Free {
			continue
		}
		if len(n.Lanes) != len(st.Engines) || int(n.Chan.Engine) >= len(st.Engines) || n.Kind > Channel || n.Chan.Hold > Paused {
			return bad("node", i)
		}
		if i != int(root) && (n.Parent < 0 || !link(n.Parent) || st.Nodes[n.Parent].Kind != Inner) {
			return bad("parent", n.Parent)
		}
		if n.Config.Weight < 1 || n.Config.Check() != nil {
			return bad("weight", n.Config.Weight)
		}
		for _, l := range []int32{n.First, n.Next, n.Prev} {
			if !link(l) {
				return bad("link", l)
			}
		}
		batched, waiting := 0, 0
		for _, b := range n.Chan.Batches {
			if batched += b.N; b.N < 1 {
				return bad("batch", b.N)
			}
		}
		for e := range n.Lanes {
			l := &n.Lanes[e]
			if waiting += l.Waiting; l.Waiting < 0 || l.Inflight < 0 {
				return bad("waiting", l.Waiting)
			}
			if !link(l.Holder) || !link(l.Last) || l.Sort.Queue > debts {
				return bad("lane", i)
			}
		}
		if n.Kind == Channel && batched != waiting || len(n.Chan.Batches) > maxBatches {
			return bad("batches", batched)
		}
		steps := 0 // every way up ends at the card
		for m := int32(i); m != root; m = st.Nodes[m].Parent {
			if steps++; !link(m) || m < 0 || steps > len(st.Nodes) {
				return bad("parent", n.Parent)
			}
		}
	}
	if err := st.checkSiblings(bad); err != nil {
		return err
	}
	for _, n := range st.Unused {
		if !link(n) || n <= root || st.Nodes[n].Kind != Free {
			return bad("unused", n)
		}
	}
	for e := range st.Engines {
		d := &st.Engines[e].DFQ
		if d.Phase >= phases || !link(d.Group) || d.At < 0 || d.At > len(d.Order) || slices.ContainsFunc(d.Order, func(n int32) bool { return !link(n) }) {
			return bad("dfq", e)
		}
	}
	return nil
}

// checkSiblings reports whether every node is once in its parent's list.
func (st *State) checkSiblings(bad func(string, any) error) error {
	seen := 1 // the card has no parent
	for i := range st.Nodes {
		if st.Nodes[i].Kind == Free {
			seen++
			continue
		}
		last := none
		for c := st.Nodes[i].First; c != none; c = st.Nodes[c].Next {
			if seen++; seen > len(st.Nodes) || st.Nodes[c].Kind == Free || st.Nodes[c].Parent != int32(i) || st.Nodes[c].Prev != last {
				return bad("sibling", c)
			}
			last = c
		}
	}
	if seen != len(st.Nodes) {
		return bad("nodes", seen)
	}
	return nil
}

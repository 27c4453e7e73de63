package sched

import "slices"

// Freeze copies the state. The scheduler continues. With Restore it proves that State is whole: a
// scheduler that is made from a copy decides as the original.
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
func Restore(st *State) *Scheduler {
	s := &Scheduler{core{State: *st}}
	s.usePolicy(&s.Config)
	return s
}

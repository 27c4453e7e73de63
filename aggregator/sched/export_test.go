package sched

// Looks is how many nodes were looked at so far.
func (s *Scheduler) Looks() uint64 { return s.looks }

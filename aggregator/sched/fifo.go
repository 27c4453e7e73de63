package sched

// fifo serves the oldest submission first, at each level of the tree.
type fifo struct{ plain }

func newFIFO(s *core, _ *Config) policy { return fifo{plain{s}} }

func (s fifo) Next(e int) (int32, int) {
	if !s.hasRoom(e) {
		return none, 0
	}
	c := s.descend(root, e, byAge)
	if c == none || !s.goesAhead(c, e, nil) {
		return none, 0
	}
	return s.give(c, root, e, 1)
}

func (s fifo) Timer(e int) int32 { return s.overstays(e, s.Config.Slice, s.yields) }

func (s fifo) yields(m, p int32, e int) bool { return s.isGroup(p) && s.plain.yields(m, p, e) }

// byAge serves the oldest submission that waits at or below a node, of a group that of the channel which
// is next. If none is ready, any number will do.
func byAge(s *core, n int32, e int) rank {
	if n = s.descend(n, e, byAge); n == none {
		return rank{}
	}
	if ch := &s.Nodes[n].Chan; ch.Hold == Granted && len(ch.Batches) > 0 {
		return rank{key: ch.Batches[0].Seq}
	}
	return rank{key: s.Nodes[n].Chan.Seq}
}

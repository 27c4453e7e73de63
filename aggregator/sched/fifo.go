package sched

// fifo serves the oldest submission first, at each level of the tree.
type fifo struct{ plain }

func (s fifo) rank(n int32, e int) rank { return rank{key: s.oldest(n, e)} }

func (s fifo) yields(int32, int32, int) bool { return false }

// oldest is the number of the oldest submission that waits at or below a node, of a group that of the
// channel which is next. If none is ready, any number will do.
func (s fifo) oldest(n int32, e int) int64 {
	for s.Nodes[n].Kind != Channel {
		if n = s.first(n, e); n == none {
			return 0
		}
	}
	if ch := &s.Nodes[n].Chan; ch.Hold == Granted && len(ch.Batches) > 0 {
		return ch.Batches[0].Seq
	}
	return s.Nodes[n].Chan.Seq
}

package aperture

import (
	"cmp"
	"slices"
)

// Adjacent pages in adjacent slots of a window are a run. Each run costs the process at most two
// mappings: its own, and one of the memory after it.

// move is pages that lie together and go to slots that do.
type move struct {
	first, n uint32
	to       slot // of the first page; inCard is for all
}

// join sorts moves of single pages and joins those that lie together on both sides. The card splits
// a move to itself.
func (s *Mapper) join(list []move) []move {
	slices.SortFunc(list, func(a, b move) int { return cmp.Compare(a.first, b.first) })
	out := list[:0]
	for _, m := range list {
		if k := len(out) - 1; k >= 0 && out[k].first+out[k].n == m.first &&
			(m.to == inCard || m.to == out[k].to+slot(out[k].n) && s.sameWindow(out[k].to, m.to)) {
			out[k].n++
			continue
		}
		out = append(out, m)
	}
	return out
}

// runsFit reports whether there may be so many more runs.
func (s *Mapper) runsFit(more int64) bool {
	return more <= 0 || s.stats.Runs.Load()+more <= int64(s.cfg.Runs)
}

// runStarts is 1 if a run begins with page n, else 0.
func (s *Mapper) runStarts(n uint32) int64 {
	at := s.backing(n)
	if at == inCard {
		return 0
	}
	if n > 0 {
		if before := s.backing(n - 1); before != inCard && before+1 == at && s.sameWindow(before, at) {
			return 0
		}
	}
	return 1
}

// runsByLeaving is how many runs there are more when pages leave: 1 if they are inside one.
func (s *Mapper) runsByLeaving(m move) (more int64) {
	for n := m.first; n <= m.first+m.n; n++ {
		more -= s.runStarts(n)
	}
	if s.backing(m.first+m.n) != inCard {
		more++
	}
	return more
}

// wholeRun returns the run around pages whose leaving would split it and exceed the limit on
// runs. The whole run leaves. Its other slots that still show pages are counted as refused.
func (s *Mapper) wholeRun(m move) move {
	first, end := m.first, m.first+m.n
	for s.runStarts(first) == 0 {
		first--
	}
	for s.backing(end) != inCard && s.runStarts(end) == 0 {
		end++
	}
	for n := first; n < end; n++ {
		p := s.Pages[n]
		if s.showing(p, p.Backing) {
			s.stats.RunsRefused.Add(s.window(p.Backing), 1)
		}
		s.flushPage(p)
		s.dropAliases(p)
	}
	return move{first, end - first, inCard}
}

package aperture

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// piece is pages that lie together and go to slots that do.
type piece struct {
	first, n uint32
	to       slot // of the first page; inCard is for all
}

// moveQueued moves the first n queued pages to their new backing. The others stay queued (see
// Pending). Set.mu is held.
func (s *Set) moveQueued(n int) {
	if len(s.queue) == 0 {
		return
	}
	began := time.Now()
	n = min(n, len(s.queue))
	batch := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	for _, p := range batch {
		p.Queued = false
		s.setDirect(p, true)
	}
	s.clear()
	s.owner.Quiesce(func() {
		s.leave(batch)
		s.clear() // before a page moves there
		s.enter(batch)
	})
	for _, p := range batch {
		s.showAgain(p)
		s.setDirect(p, false)
		if p.First == inCard && p.Backing == inCard && !p.Queued {
			delete(s.Pages, p.N)
		}
	}
	s.clear()
	s.stats.MoveTime.Add(uint64(time.Since(began)))
	s.pending.Store(len(s.queue) > 0)
}

// setDirect reports to the owner that the guest begins, or ceases, to reach a page without a
// trap.
func (s *Set) setDirect(p *PageState, on bool) {
	if p.Direct != on && (p.First != inCard) == on {
		p.Direct = on
		s.owner.Direct(uint64(p.N)<<pageShift, on)
	}
}

// leave takes pages out of slots that show them no more: to an alias, or to the card.
func (s *Set) leave(batch []*PageState) {
	var list []piece
	for _, p := range batch {
		if p.Backing == inCard || s.showing(p, p.Backing) {
			continue
		}
		if len(p.Aliases) > 0 {
			if s.promote(p, slices.Min(p.Aliases)) {
				continue
			}
			s.flushPage(p)
			s.dropAliases(p)
		}
		list = append(list, piece{p.N, 1, inCard})
	}
	for _, m := range join(s, list) {
		if !s.fits(s.leaving(m)) {
			m = s.wholeRun(m)
		}
		s.relocate(m)
	}
}

// enter moves pages to the slots that should back them, if these are free.
func (s *Set) enter(batch []*PageState) {
	var list []piece
	for _, p := range batch {
		to := s.wanted(p)
		if to == inCard || to == p.Backing {
			continue
		}
		switch other := s.resident(to); {
		case other != nil && other.Queued: // it leaves later
			s.enqueue(p)
		case other != nil, p.Backing != inCard && !s.showing(p, p.Backing): // the card did not move it
			s.stats.MovesRefused.Add(s.window(to), 1)
		case p.Backing == inCard:
			list = append(list, piece{p.N, 1, to})
		case s.Slots[to].MergeBase != nil || s.addAlias(p, to):
			s.promote(p, to)
		}
	}
	for _, m := range join(s, list) {
		if !s.fits(1) {
			s.stats.RunsRefused.Add(s.window(m.to), uint64(m.n))
			continue
		}
		s.relocate(m)
	}
}

// promote makes an alias the backing slot of its page without a copy, because the guest may be
// storing there. The merges come right before the move, the merge of the new backing slot last.
// So that slot has all bytes of every merge base, and no later merge reverts one. The old backing
// slot becomes an alias with the same merge base, so later stores there are merged.
func (s *Set) promote(p *PageState, to slot) bool {
	from, base := p.Backing, s.Slots[to].MergeBase
	if !s.fits(s.leaving(piece{p.N, 1, inCard}) + 1) {
		s.stats.RunsRefused.Add(s.window(to), 1)
		return false
	}
	for _, o := range p.Aliases {
		if o != to {
			s.flush(p, o)
			s.step()
		}
	}
	s.flush(p, to)
	s.step()
	s.unlink(p, to)
	if !s.relocate(piece{p.N, 1, to}) {
		s.link(p, to, base)
		return false
	}
	if s.showing(p, from) {
		s.link(p, from, base)
	} else {
		s.vacated = append(s.vacated, from)
	}
	return true
}

// showAgain makes aliases of the slots that show a page and do not back it.
func (s *Set) showAgain(p *PageState) {
	if p.Backing == inCard {
		s.dropAliases(p)
		return
	}
	if p.Queued && !s.showing(p, p.Backing) {
		return // it leaves later
	}
	for at := p.First; at != inCard; at = s.Slots[at].Next {
		other := s.resident(at)
		switch {
		case at == p.Backing || s.Slots[at].MergeBase != nil:
		case other != nil && other.Queued:
			s.enqueue(p)
		case other == nil && !s.addAlias(p, at):
			s.stats.AliasesRefused.Add(s.window(at), 1)
			s.vacated = append(s.vacated, at)
		}
	}
}

// relocate has the card move pages, and reports whether all of them were moved.
func (s *Set) relocate(m piece) bool {
	r := card.Relocation{Addr: uint64(m.first) << pageShift, Size: uint64(m.n) << pageShift}
	if m.to != inCard {
		f, off := s.at(m.to)
		r.To, r.Off = f.file, off
		r.NoCopy = s.backing(m.first) != inCard
	}
	done, err := s.owner.Relocate(r)
	n := uint32(done >> pageShift)
	for i := range n {
		to := m.to
		if to != inCard {
			to += slot(i)
		}
		s.settle(s.Pages[m.first+i], to)
	}
	s.stats.Moves.Add(1)
	s.stats.PagesMoved.Add(uint64(n))
	if err == nil {
		return true
	}
	s.Refused = err.Error()
	for i := n; i < m.n; i++ {
		at := m.to
		if at == inCard {
			at = s.backing(m.first + i)
		}
		s.stats.MovesRefused.Add(s.window(at), 1)
	}
	return false
}

// settle notes where a page is now.
func (s *Set) settle(p *PageState, to slot) {
	before := s.starts(p.N) + s.starts(p.N+1)
	if p.Backing != inCard {
		s.Slots[p.Backing].Resident = nothing
		s.stats.Resident[s.window(p.Backing)].Add(-1)
	}
	if p.Backing = to; to != inCard {
		s.Slots[to].Resident = shows(p.N)
		s.stats.Resident[s.window(to)].Add(1)
	}
	s.stats.Runs.Add(s.starts(p.N) + s.starts(p.N+1) - before)
}

// Adjacent pages in a window are a run. Each run costs the process at most two mappings:
// its own, and one of the memory after it.

// fits reports whether there may be so many more runs.
func (s *Set) fits(more int64) bool {
	return more <= 0 || s.stats.Runs.Load()+more <= int64(s.cfg.Runs)
}

// starts is 1 if a run begins with page n.
func (s *Set) starts(n uint32) int64 {
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

// leaving is how many runs there are more when pages leave: 1 if they are inside one.
func (s *Set) leaving(m piece) (runs int64) {
	for n := m.first; n <= m.first+m.n; n++ {
		runs -= s.starts(n)
	}
	if s.backing(m.first+m.n) != inCard {
		runs++
	}
	return runs
}

// wholeRun returns the run around pages whose leaving would split it and exceed the limit on
// runs. The whole run leaves. Its other slots that still show pages are counted as refused.
func (s *Set) wholeRun(m piece) piece {
	first, end := m.first, m.first+m.n
	for s.starts(first) == 0 {
		first--
	}
	for s.backing(end) != inCard && s.starts(end) == 0 {
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
	return piece{first, end - first, inCard}
}

// join sorts single pages and joins those that lie together on both sides. The card splits a move
// to itself.
func join(s *Set, list []piece) []piece {
	slices.SortFunc(list, func(a, b piece) int { return cmp.Compare(a.first, b.first) })
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

// empty sends all pages back to the card and clears the files. It returns how many pages the card
// did not take: the files then stay as they are.
func (s *Set) empty() (left int64) {
	for i, b := range s.bars {
		if b != nil {
			s.BARs[i] = Binding{}
			s.bars[i] = newScanner(b.Binding, b.kind, b.pages, b.vram)
		}
	}
	for at := range slot(len(s.Slots)) {
		s.show(at, nothing)
		if p := s.resident(at); p != nil {
			s.enqueue(p) // the card may have refused it before
		}
	}
	s.moveQueued(math.MaxInt)
	for k := range s.stats.Resident {
		left += s.stats.Resident[k].Load()
	}
	if left > 0 {
		return left
	}
	for _, m := range s.files {
		if m != nil {
			m.punch(0, uint64(len(m.mem)))
		}
	}
	s.putROM()
	return 0
}

// clear zeroes slots that lost their page, unless another page is there by now.
func (s *Set) clear() {
	list := s.vacated
	s.vacated = s.vacated[:0]
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(at slot) bool {
		return s.Slots[at].Resident != nothing || s.Slots[at].MergeBase != nil
	})
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0]+slot(n) && s.sameWindow(list[0], list[n]) {
			n++
		}
		m, off := s.at(list[0])
		m.punch(off, uint64(n)<<pageShift)
		list = list[n:]
	}
}

// at returns the file of a slot, and the slot's offset in it.
func (s *Set) at(at slot) (*memory, uint64) {
	k, n := s.kind(at)
	off := uint64(n) << pageShift
	switch k {
	case BAR3:
		return s.files[card.BAR3], off
	case BAR1:
		return s.files[card.BAR1], off
	}
	return s.files[card.BAR0], praminBase + off
}

// bytes is a slot's page as the guest sees it.
func (s *Set) bytes(at slot) []byte {
	m, off := s.at(at)
	return m.mem[off : off+pageSize]
}

package aperture

import (
	"math"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Pages whose slots have changed are in the queue. A batch of them is moved in three passes:
//
//  1. evict: a page leaves a slot that no longer shows it, to an alias of it if there is one, else
//     to the card.
//  2. place: a page goes to the slot that should back it, see [Mapper.wanted].
//  3. addAliases: the other slots that show a page become aliases.
//
// In the end the slots that lost their page and got no other are cleared. A pass that needs a slot
// whose page is in a later batch puts its own page back into the queue. What the limits or the card
// refuse stays where it is, and is counted.

// moveQueued moves the first n queued pages. The others stay queued (see Pending). Mapper.mu is held.
func (s *Mapper) moveQueued(n int) {
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
	s.owner.Quiesce(func() {
		s.evict(batch)
		s.place(batch)
	})
	for _, p := range batch {
		s.addAliases(p)
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
func (s *Mapper) setDirect(p *PageState, on bool) {
	if p.Direct != on && (p.First != inCard) == on {
		p.Direct = on
		s.owner.Direct(uint64(p.N)<<pageShift, on)
	}
}

// evict is the first pass.
func (s *Mapper) evict(batch []*PageState) {
	var moves []move
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
		moves = append(moves, move{p.N, 1, inCard})
	}
	for _, m := range s.join(moves) {
		if !s.runsFit(s.runsByLeaving(m)) {
			m = s.wholeRun(m)
		}
		s.relocate(m)
	}
}

// place is the second pass.
func (s *Mapper) place(batch []*PageState) {
	var moves []move
	for _, p := range batch {
		to := s.wanted(p)
		if to == inCard || to == p.Backing {
			continue
		}
		stuck := p.Backing != inCard && !s.showing(p, p.Backing) // the card did not evict it
		switch other := s.resident(to); {
		case other != nil && other.Queued:
			s.enqueue(p)
		case other != nil || stuck:
			s.stats.MovesRefused.Add(s.window(to), 1)
		case p.Backing == inCard:
			moves = append(moves, move{p.N, 1, to})
		case s.Slots[to].MergeBase != nil || s.addAlias(p, to):
			s.promote(p, to)
		}
	}
	for _, m := range s.join(moves) {
		if !s.runsFit(1) {
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
func (s *Mapper) promote(p *PageState, to slot) bool {
	from, base := p.Backing, s.Slots[to].MergeBase
	if !s.runsFit(s.runsByLeaving(move{p.N, 1, inCard}) + 1) {
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
	if !s.relocate(move{p.N, 1, to}) {
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

// addAliases is the third pass, for one page.
func (s *Mapper) addAliases(p *PageState) {
	if p.Backing == inCard {
		s.dropAliases(p)
		return
	}
	if p.Queued && !s.showing(p, p.Backing) {
		return // it leaves later
	}
	for at := range s.slotsOf(p) {
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
func (s *Mapper) relocate(m move) bool {
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
		s.setBacking(s.Pages[m.first+i], to)
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

// setBacking notes where a page is now.
func (s *Mapper) setBacking(p *PageState, to slot) {
	before := s.runStarts(p.N) + s.runStarts(p.N+1)
	if p.Backing != inCard {
		s.Slots[p.Backing].Resident = nothing
		s.stats.Resident[s.window(p.Backing)].Add(-1)
	}
	if p.Backing = to; to != inCard {
		s.Slots[to].Resident = shows(p.N)
		s.stats.Resident[s.window(to)].Add(1)
	}
	s.stats.Runs.Add(s.runStarts(p.N) + s.runStarts(p.N+1) - before)
}

// empty sends all pages back to the card and clears the files. It returns how many pages the card
// did not take: the files then stay as they are.
func (s *Mapper) empty() (left int64) {
	for i, b := range s.bars {
		if b != nil {
			s.BARs[i] = Binding{}
			s.bars[i] = newScanner(b.format, b.Binding, b.kind, b.root.pages, b.vram)
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

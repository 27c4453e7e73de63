package homes

import (
	"bytes"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// add makes a place a replica.
func (s *Set) add(at place, r *replica) {
	r.mem, r.kind, r.index = s.bytes(at), s.window(at), len(s.order)
	s.order = append(s.order, r)
	s.replicas[at] = r
	if r.after = s.ofPage[r.page]; r.after != nil {
		r.after.before = r
	}
	s.ofPage[r.page] = r
	if s.stats.Replicas.Add(1) == 1 {
		s.wake()
	}
}

// drop makes a place no replica any more.
func (s *Set) drop(at place) {
	r := s.replicas[at]
	delete(s.replicas, at)
	if r.after != nil {
		r.after.before = r.before
	}
	switch {
	case r.before != nil:
		r.before.after = r.after
	case r.after != nil:
		s.ofPage[r.page] = r.after
	default:
		delete(s.ofPage, r.page)
	}
	last := s.order[len(s.order)-1]
	s.order[r.index], last.index = last, r.index
	s.order = slices.Delete(s.order, len(s.order)-1, len(s.order))
	s.stats.Replicas.Add(-1)
}

// userd is how many bytes of a page of the poll area have a meaning. A driver that
// writes them through another window too, when it makes a channel, makes each of the
// 128 pages one that has replicas: what is looked at at each trapped write must be
// little. The rest of such pages is looked at with everything else, a moment later.
const userd = 512

// reconcile makes all replicas equal to their homes, and returns how many bytes went
// over. Of pages of the poll area it looks at the first so many bytes. If a page has
// several, and one of them changed, it looks at all of them again.
func (s *Set) reconcile(polled int) (moved int) {
	for range 2 {
		n := 0
		for _, r := range s.order {
			n += s.hold(r, polled).moved
		}
		if moved += n; n == 0 {
			break
		}
	}
	return moved
}

// hold makes one replica equal to its home; if that is in the poll area, the first so
// many bytes of it.
func (s *Set) hold(r *replica, polled int) (m merged) {
	undone := 0 // bytes that were looked at for it
	if r.readOnly && !bytes.Equal(r.mem, r.agreed) {
		s.stats.Undone.Add(differing(r.mem, r.agreed))
		undone = pageSize
	}
	if home := s.plan.home(r.page); home == own {
		m = s.take(r)
	} else {
		m = s.merge(r, home, polled)
	}
	m.looked += undone
	return m
}

// merge is hold for a page that lives at a place.
func (s *Set) merge(r *replica, home place, polled int) merged {
	end := s.reach(home, polled)
	m := merge(s.bytes(home)[:end], r.mem[:end], r.agreed[:end], r.readOnly)
	s.stats.Reconciles.Add(1)
	s.stats.BytesMerged.Add(uint64(m.moved))
	if m.overruled > 0 {
		s.stats.Overruled.Add(r.kind, uint64(m.overruled))
	}
	if m.fast {
		s.stats.Lost.Add(r.kind, 1)
	}
	return m
}

// reach is how many bytes of a page that lives at home are looked at, if of those in the
// poll area so many are.
func (s *Set) reach(home place, polled int) int {
	if home < s.plan.base[PollArea+1] {
		return polled
	}
	return pageSize
}

// gather brings to homes what was written to their replicas, and ends when that is more work
// than so much (Work.merging). What only a home has is not looked at: that is half of the work, and
// who submits waits for it.
func (s *Set) gather(most int) (w Work) {
	s.stats.Gathers.Add(1)
	s.soon()
	for i := 0; i < len(s.order) && w.merging() <= most; i++ {
		r := s.order[i]
		if r.readOnly {
			continue
		}
		end := s.compares(r)
		w.Compared += end
		if bytes.Equal(r.mem[:end], r.agreed[:end]) {
			s.stats.Reconciles.Add(1)
			continue
		}
		w.merge(s.hold(r, userd))
	}
	return w
}

// take gives a replica the bytes of a page that lives in the card's own memory: no
// place shows it to be written, so it has nothing to give.
func (s *Set) take(r *replica) (m merged) {
	s.stats.Reconciles.Add(1)
	addr := uint64(r.page) << pageShift
	if bytes.Equal(r.mem, r.agreed) && s.owner.SameTable(shadowpt.VRAM, addr, r.agreed) {
		return m
	}
	s.owner.ReadTable(shadowpt.VRAM, addr, r.agreed)
	n := differing(r.mem, r.agreed)
	copy(r.mem, r.agreed)
	s.stats.BytesMerged.Add(n)
	return merged{looked: pageSize, words: pageSize / 4} // to the place alone: no other has to hear of it
}

// How often replicas are looked at while the guest does nothing that is trapped: at
// once after it did, and then ever less, so that who waits has not waited twice as
// long as it had to.
const (
	freshMin = 250 * time.Microsecond
	freshMax = 4 * time.Second
	// freshLoad is what the pause after a round is by the round at least, so that a guest that
	// stores to many places has a quarter of a processor, and not all of it. The pause is
	// freshPause at most: a round that takes longer was without a processor itself.
	freshLoad  = 3
	freshPause = 50 * time.Millisecond
	// slowAt is from when on a trap makes it look at once again.
	slowAt = 4 * freshMin
	// restAt is from when on a guest counts as idle: pages of the poll area are then looked
	// at as Order does, and as a whole in one of restWhole rounds. Comparing the 128 of
	// them is 0.2 ms, and at each round of 32 idle guests that is 1 % of a processor.
	restAt    = 50 * time.Millisecond
	restWhole = 2
)

// rounds says when replicas are looked at next, and how much of them. It is data; the
// timer is its caller's.
type rounds struct {
	wait time.Duration // before the round to come
	took time.Duration // the last one
	idle int           // rounds at rest before it, since one of all bytes
}

// poked is that the guest has done something.
func (r *rounds) poked() { r.wait, r.idle = max(freshMin, r.pause()), 0 }

// pause is how long there is none after the last one.
func (r *rounds) pause() time.Duration { return min(freshLoad*r.took, freshPause) }

// seldom is that a guest that does something is to poke: the next round is later than it
// has to be. It is not so after a poke, or a guest that pokes all the time would put the
// round off for ever.
func (r *rounds) seldom() bool { return r.wait > max(slowAt, r.pause()) }

// polled is how many bytes of a page of the poll area the round looks at.
func (r *rounds) polled() int {
	if r.wait < restAt || r.idle >= restWhole-1 {
		return pageSize
	}
	return userd
}

// due is how long after now the next round is. Guests at rest share their moments: to wake
// for each of them is more than what they have done.
func (r *rounds) due(now time.Time) time.Duration {
	if r.wait != freshMax {
		return r.wait
	}
	return now.Truncate(freshMax).Add(freshMax).Sub(now)
}

// done is that the round took so long, and that so many bytes went over.
func (r *rounds) done(moved int, took time.Duration) {
	whole := r.polled() == pageSize
	r.took = took
	if moved > 0 {
		r.poked()
		return
	}
	r.wait = max(min(r.wait*2, freshMax), r.pause())
	if r.idle++; whole {
		r.idle = 0
	}
}

func (s *Set) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// freshen keeps replicas equal while their guest's processors and the engines work
// on them without a trap.
func (s *Set) freshen() {
	timer := time.NewTimer(freshMax)
	timer.Stop()
	defer timer.Stop()
	var next rounds
	for {
		select {
		case <-s.closing:
			return
		case <-s.poke:
			next.poked()
		case <-timer.C:
			s.mu.Lock()
			began := time.Now()
			moved, left := s.reconcile(next.polled()), len(s.order)
			took := time.Since(began)
			s.mu.Unlock()
			if left == 0 {
				s.slow.Store(true)
				continue // until there are replicas again
			}
			next.done(moved, took)
		}
		s.slow.Store(next.seldom())
		timer.Reset(next.due(time.Now()))
	}
}

package homes

import (
	"bytes"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// add makes a place a replica.
func (s *Set) add(at Place, r *replica) {
	r.index = len(s.order)
	s.order = append(s.order, at)
	s.replicas[at] = r
	if s.stats.Replicas.Add(1) == 1 {
		s.wake()
	}
}

// drop makes a place no replica any more.
func (s *Set) drop(at Place) {
	r := s.replicas[at]
	delete(s.replicas, at)
	last := s.order[len(s.order)-1]
	s.order[r.index] = last
	if last != at {
		s.replicas[last].index = r.index
	}
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
		for _, at := range s.order {
			n += s.hold(at, polled)
		}
		if moved += n; n == 0 {
			break
		}
	}
	return moved
}

// hold makes one replica equal to its home; if that is in the poll area, the first so
// many bytes of it.
func (s *Set) hold(at Place, polled int) int {
	r := s.replicas[at]
	home := s.plan.home(r.page)
	if r.readOnly && !bytes.Equal(s.bytes(at), r.agreed) {
		s.stats.Undone.Add(differing(s.bytes(at), r.agreed))
	}
	if home == own {
		return s.take(at, r)
	}
	end := pageSize
	if home < s.plan.base[PollArea+1] {
		end = polled
	}
	n, ok := merge(s.bytes(home)[:end], s.bytes(at)[:end], r.agreed[:end], r.readOnly)
	s.stats.Reconciles.Add(1)
	s.stats.BytesMerged.Add(uint64(n))
	if !ok {
		s.stats.Lost.Add(1)
	}
	return n
}

// take gives a replica the bytes of a page that lives in the card's own memory: no
// place shows it to be written, so it has nothing to give.
func (s *Set) take(at Place, r *replica) int {
	s.stats.Reconciles.Add(1)
	place, addr := s.bytes(at), uint64(r.page)<<pageShift
	if bytes.Equal(place, r.agreed) && s.owner.SameTable(shadowpt.VRAM, addr, r.agreed) {
		return 0
	}
	s.owner.ReadTable(shadowpt.VRAM, addr, r.agreed)
	n := differing(place, r.agreed)
	copy(place, r.agreed)
	s.stats.BytesMerged.Add(n)
	return 0 // to the place alone: no other has to hear of it
}

// How often replicas are looked at while the guest does nothing that is trapped: at
// once after it did, and then ever less, so that who waits has not waited twice as
// long as it had to.
const (
	freshMin = 250 * time.Microsecond
	freshMax = time.Second
	// slowAt is from when on a trap makes it look at once again.
	slowAt = 4 * freshMin
)

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
	wait := freshMax
	for {
		select {
		case <-s.closing:
			return
		case <-s.poke:
			wait = freshMin
		case <-timer.C:
			s.mu.Lock()
			moved, left := s.reconcile(pageSize), len(s.order)
			s.mu.Unlock()
			if left == 0 {
				s.slow.Store(true)
				continue // until there are replicas again
			}
			wait = min(wait*2, freshMax)
			if moved > 0 {
				wait = freshMin
			}
		}
		s.slow.Store(wait > slowAt)
		timer.Reset(wait)
	}
}

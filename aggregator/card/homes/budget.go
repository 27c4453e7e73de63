package homes

import "sync/atomic"

// work is what one trap has moved.
type work struct {
	spent   int // of Limits.Moves
	entered int // pages that came to windows, or went from one to another
	left    int // pages that went home to the card
}

// budget is how many pages the trap under way may still bring to where they belong. A
// trap begins with Glance; what comes without it shares what is left. Set.mu is held.
func (s *Set) budget() int {
	if !s.begun.Load() {
		s.begun.Store(true)
		s.trap = work{}
	}
	return max(0, s.cfg.Moves-s.trap.spent)
}

// spend is follow at the trap's cost. A page that leaves one place for another counts once,
// one that is taken along once more.
func (s *Set) spend(n int) {
	left := s.trap.left
	s.trap.spent += max(s.follow(n), s.trap.left-left)
	raise(&s.stats.MostEntered, s.trap.entered)
	raise(&s.stats.MostLeft, s.trap.left)
}

// raise makes a gauge n if it is less. Set.mu is held.
func raise(gauge *atomic.Int64, n int) {
	if int64(n) > gauge.Load() {
		gauge.Store(int64(n))
	}
}

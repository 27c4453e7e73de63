package shadowpt

import "slices"

// place notes that the card has a node, and what it names, at one more address.
func (s *Shadow) place(n *node, va uint64) {
	if n == nil {
		return
	}
	if n.places = append(n.places, va); n.placeAt != nil {
		n.placeAt[va] = len(n.places) - 1
	}
	s.work.placed += s.weight(n)
	n.eachKid(func(i int, kid *node) { s.place(kid, va+uint64(i)<<s.format.Dirs[n.key.level].Shift) })
}

// unplace is the reverse of place.
func (s *Shadow) unplace(n *node, va uint64) {
	if n == nil {
		return
	}
	last := len(n.places) - 1
	i, moved := n.findPlace(va), n.places[last]
	if n.places[i], n.places = moved, n.places[:last]; n.placeAt != nil {
		n.placeAt[moved] = i
		delete(n.placeAt, va)
	}
	s.work.placed -= s.weight(n)
	n.eachKid(func(i int, kid *node) { s.unplace(kid, va+uint64(i)<<s.format.Dirs[n.key.level].Shift) })
}

// fewPlaces is how many places are searched without an index. Most nodes have one.
const fewPlaces = 16

// findPlace returns the index of a place.
func (n *node) findPlace(va uint64) int {
	if n.placeAt == nil {
		if len(n.places) <= fewPlaces {
			return slices.Index(n.places, va)
		}
		n.placeAt = make(map[uint64]int, len(n.places))
		for i, at := range n.places {
			n.placeAt[at] = i
		}
	}
	return n.placeAt[va]
}

// weight is what one place of a node takes of the quota: the tables that the card may need for it,
// and placeCost.
func (s *Shadow) weight(n *node) uint64 { return placeCost + uint64(n.pages)*SmallPage }

// placeCost bounds the places of nodes without pages. Drivers may name an empty table everywhere.
const placeCost = 256

// fits reports whether there is room for so many more places of a node, and counts the work of mapping
// it there. Once there was none, it
// refuses all directories until the next update, so that all this weighing takes no longer than what
// it lets through.
func (s *Shadow) fits(n *node, places int) bool {
	w := s.work
	if places == 0 {
		return true
	}
	if w.placed >= w.quota || w.full && n.kids != nil {
		return false
	}
	room := (w.quota - w.placed) / uint64(places)
	left := room
	ok := s.weigh(n, &left)
	w.full = w.full || !ok
	return ok && w.take((room-left)*uint64(places))
}

// weigh subtracts the weight of a node and of what it names, until nothing is left.
func (s *Shadow) weigh(n *node, left *uint64) (ok bool) {
	w := s.weight(n)
	if ok = w <= *left; ok {
		*left -= w
		n.eachKid(func(_ int, kid *node) { ok = ok && s.weigh(kid, left) })
	}
	return ok
}

// dropOrphans drops the nodes that no entry names, with what only they name.
func (s *Shadow) dropOrphans() {
	for s.orphans {
		s.orphans = false
		for _, n := range s.nodes {
			if n.links > 0 {
				continue
			}
			if s.tracker != nil {
				s.tracker.unhold(s, n)
			}
			n.eachKid(func(_ int, kid *node) {
				kid.links--
				s.orphans = s.orphans || kid.links == 0
			})
			s.work.nodes--
			delete(s.nodes, n.key)
		}
	}
}

package channels

import "math/bits"

// Max is the most channels of a guest. A face numbers them from 0.
const Max = 128

// Set is a set of channel numbers.
type Set [Max / 64]uint64

// Add and Remove change a member, and Has asks for it.
func (s *Set) Add(id uint32)      { s[id/64] |= 1 << (id % 64) }
func (s *Set) Remove(id uint32)   { s[id/64] &^= 1 << (id % 64) }
func (s *Set) Has(id uint32) bool { return s[id/64]>>(id%64)&1 != 0 }

// Put adds or removes a member.
func (s *Set) Put(id uint32, on bool) {
	if s.Remove(id); on {
		s.Add(id)
	}
}

// And returns the members of both.
func (s Set) And(o Set) Set {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Without returns the members that are not in o.
func (s Set) Without(o Set) Set {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// Empty reports whether there is no member.
func (s *Set) Empty() bool { return *s == Set{} }

// Each calls f for the members, lowest first.
func (s *Set) Each(f func(id uint32)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint32(i*64 + bits.TrailingZeros64(word)))
		}
	}
}

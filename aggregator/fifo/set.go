package fifo

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Set is a set of channel numbers.
type Set [gf100.Channels / 64]uint64

// Add and Remove change a member, and Has asks for it.
func (s *Set) Add(id uint8)      { s[id/64] |= 1 << (id % 64) }
func (s *Set) Remove(id uint8)   { s[id/64] &^= 1 << (id % 64) }
func (s *Set) Has(id uint8) bool { return s[id/64]>>(id%64)&1 != 0 }

// Empty reports whether there is no member.
func (s *Set) Empty() bool { return *s == Set{} }

// Each calls f for the members, lowest first.
func (s *Set) Each(f func(id uint8)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint8(i*64 + bits.TrailingZeros64(word)))
		}
	}
}

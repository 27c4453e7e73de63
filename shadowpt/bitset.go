package shadowpt

// bitset is a set of indices of entries.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }

func (b bitset) set(i int, on bool) {
	b[i/64] &^= 1 << (i % 64)
	if on {
		b[i/64] |= 1 << (i % 64)
	}
}

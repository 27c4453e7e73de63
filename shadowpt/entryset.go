package shadowpt

import "math/bits"

const setWords = DirEntries / 64

// entrySet is a sparse set of directory entries.
type entrySet struct {
	words [setWords]uint64
	used  [setWords / 64]uint64 // words that may not be zero
}

func (e *entrySet) add(i int) {
	e.words[i/64] |= 1 << (i % 64)
	e.used[i/64/64] |= 1 << (i / 64 % 64)
}

func (e *entrySet) remove(i int) { e.words[i/64] &^= 1 << (i % 64) }

// addAll adds the members of o.
func (e *entrySet) addAll(o *entrySet) {
	for at, m := range o.used {
		e.used[at] |= m
		for ; m != 0; m &= m - 1 {
			w := at*64 + bits.TrailingZeros64(m)
			e.words[w] |= o.words[w]
		}
	}
}

// take removes and returns the entries of the first nonzero word from w on. It returns
// setWords if there is none.
func (e *entrySet) take(w int) (word int, entries uint64) {
	for at := w / 64; at < len(e.used); at++ {
		m := e.used[at] >> (w % 64) << (w % 64)
		if m == 0 {
			w = 0
			continue
		}
		word = at*64 + bits.TrailingZeros64(m)
		e.used[at] &^= 1 << (word % 64)
		entries, e.words[word] = e.words[word], 0
		return word, entries
	}
	return setWords, 0
}

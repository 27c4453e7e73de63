package smtest

import (
	"math/rand/v2"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Words makes a program of random words of all forms, the first of a given one.
func Words(r *rand.Rand, first *isa.Form, n int) []uint64 {
	var code []uint64
	forms := isa.Forms()
	for len(code) < n {
		f := forms[r.IntN(len(forms))]
		if len(code) == 0 {
			f = first
		}
		code = append(code, WordsOf(r, f, 1)...)
	}
	return code
}

// WordsOf makes n random words of a form, or fewer if its words are seldom defined.
func WordsOf(r *rand.Rand, f *isa.Form, n int) (code []uint64) {
	for range n {
		for range 100 {
			w := f.Value | r.Uint64()&r.Uint64()&r.Uint64()&^f.Mask
			if r.IntN(3) > 0 {
				w |= 7 << 10 // no guard
			}
			if r.IntN(2) > 0 {
				w |= isa.CondTrue << 5 &^ f.Mask // no condition
			}
			if r.IntN(3) == 0 {
				w |= isa.True << 49 &^ f.Mask // the predicate of many forms
			}
			if _, err := isa.Decode(w, 0); err == nil {
				code = append(code, w)
				break
			}
		}
	}
	return code
}

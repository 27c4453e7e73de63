package isa

import (
	"fmt"
	"strconv"
	"strings"
)

// A segment is a run of bits in an instruction.
type segment struct{ pos, width uint8 }

// A field is a number in an instruction, in segments from its lowest bits on.
type field []segment

// parseField reads "POS", "POS:WIDTH", or several of them with commas. Without a width, the
// segment takes the default.
func parseField(s string, width uint8) (f field) {
	for part := range strings.SplitSeq(s, ",") {
		pos, w, sized := strings.Cut(part, ":")
		seg := segment{number(pos), width}
		if sized {
			seg.width = number(w)
		}
		f = append(f, seg)
	}
	return f
}

func number(s string) uint8 {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n > 64 {
		panic(fmt.Sprintf("isa: bad position %q in a row", s))
	}
	return uint8(n)
}

func (f field) get(w uint64) (v uint64) {
	shift := uint8(0)
	for _, s := range f {
		v |= w >> s.pos & (1<<s.width - 1) << shift
		shift += s.width
	}
	return v
}

func (f field) put(v uint64) (w uint64) {
	for _, s := range f {
		w |= v & (1<<s.width - 1) << s.pos
		v >>= s.width
	}
	return w
}

func (f field) width() (n uint8) {
	for _, s := range f {
		n += s.width
	}
	return n
}

func (f field) mask() uint64 { return f.put(^uint64(0)) }

// fits reports whether a field can hold a number that is shifted and, perhaps, signed.
func (f field) fits(v int64, shift uint8, signed bool) bool {
	if v&(1<<shift-1) != 0 {
		return false
	}
	n := f.width()
	if signed {
		return v>>shift >= -1<<(n-1) && v>>shift < 1<<(n-1)
	}
	return uint64(v)>>shift < 1<<n
}

// extend sign-extends the lowest n bits.
func extend(v uint64, n uint8) int64 { return int64(v<<(64-n)) >> (64 - n) }

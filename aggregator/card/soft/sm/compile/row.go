package compile

import (
	"fmt"
	"strings"
)

// Rows are the words of all lanes as memory has them.

func rowType(typ string, words int) string { return fmt.Sprintf("<%d x %s>", Lanes*words, typ) }

func rowSuffix(typ string, words int) string { return fmt.Sprintf("v%d%s", Lanes*words, typ) }

// indices is a constant vector of numbers.
func indices(n int, at func(i int) int) string {
	var s strings.Builder
	s.WriteByte('<')
	for i := range n {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "i32 %d", at(i))
	}
	s.WriteByte('>')
	return s.String()
}

// everyNth picks n elements: one of every so many.
func everyNth(n, every, first int) string {
	return indices(n, func(i int) int { return i*every + first })
}

// interleaved puts words beside each other that come one row after the other.
func interleaved(words int) string { return interleavedOf(Lanes, words) }

func interleavedOf(lanes, words int) string {
	return indices(lanes*words, func(i int) int { return i%words*lanes + i/words })
}

// rowMask is the lanes' mask with each lane as often as it has words.
func (b *Builder) rowMask(words int) string {
	m := b.laneVector(b.lanes.mask)
	if words == 1 {
		return m
	}
	return b.line("shufflevector <32 x i1> %s, <32 x i1> poison, <%d x i32> %s", m, Lanes*words, indices(Lanes*words, func(i int) int { return i / words }))
}

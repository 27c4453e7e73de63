package homes

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

var le = binary.LittleEndian

// replica is a place that shows a page which lives at another.
type replica struct {
	mem      []byte // what the guest sees there
	kind     Kind   // of the window that it is in
	page     uint32
	readOnly bool   // what the guest writes there does not count
	agreed   []byte // what place and home had when they were last held equal
	index    int    // in Set.order

	before, after *replica // of the same page; see Set.ofPage
}

// line is how many bytes merge looks at word by word if one of them has changed. In most pages
// that have changed, few lines have.
const line = 64

// mergeTries is how often a word is looked at again that changes meanwhile.
const mergeTries = 16

// merged is what a merge did.
type merged struct {
	looked    int  // bytes that were looked at word by word
	words     int  // of these, that had changed
	moved     int  // bytes that went over
	overruled int  // bytes that place had changed, too, and to something else
	fast      bool // some word changed too fast
}

// merge makes the bytes of home and place equal: what one of them changed since
// they agreed goes to the other. If both changed a byte, home's counts.
func merge(home, place, agreed []byte, readOnly bool) (all merged) {
	if bytes.Equal(home, agreed) && bytes.Equal(place, agreed) {
		return all
	}
	for off := 0; off < len(agreed); off += line {
		end := min(off+line, len(agreed))
		h, p, a := home[off:end], place[off:end], agreed[off:end]
		if bytes.Equal(h, a) && bytes.Equal(p, a) {
			continue
		}
		m := mergeLine(h, p, a, readOnly)
		all.looked += len(a)
		all.words += m.words
		all.moved += m.moved
		all.overruled += m.overruled
		all.fast = all.fast || m.fast
	}
	return all
}

// mergeLine is merge without a look at anything else than words.
func mergeLine(home, place, agreed []byte, readOnly bool) (all merged) {
	for off := 0; off < len(agreed); off += 4 {
		a := le.Uint32(agreed[off:])
		if load(home, off) == a && load(place, off) == a {
			continue
		}
		v, m := mergeWord(home, place, off, a, readOnly)
		le.PutUint32(agreed[off:], v)
		all.words++
		all.moved += m.moved
		all.overruled += m.overruled
		all.fast = all.fast || m.fast
	}
	return all
}

// mergeWord is merge for one word. Each side is held against its own last value,
// so that a store which comes in between is seen in the next turn. A place that
// never stands still is overwritten in the end.
func mergeWord(home, place []byte, off int, a uint32, readOnly bool) (agreed uint32, m merged) {
	homeWas, placeWas := a, a
	for range mergeTries {
		h, p := load(home, off), load(place, off)
		byHome, byPlace := changed(h, homeWas), changed(p, placeWas)
		if readOnly {
			byPlace = 0
		}
		both := byPlace & byHome
		byPlace &^= byHome
		v := h&^byPlace | p&byPlace
		if v != h {
			if !swap(home, off, h, v) {
				continue
			}
			m.moved += bits.OnesCount32(byPlace) / 8
		}
		homeWas, placeWas = v, p
		if p == v {
			return v, m
		}
		if swap(place, off, p, v) {
			m.moved += bits.OnesCount32(changed(p, v)) / 8
			m.overruled += bits.OnesCount32(changed(p, v)&both) / 8
			return v, m
		}
	}
	m.fast = true
	if homeWas == a && placeWas == a {
		return a, m // nothing has gone over: next time
	}
	h := load(home, off)
	set(place, off, h)
	return h, m
}

// differing is in how many bytes two pages differ.
func differing(a, b []byte) (n uint64) {
	for off := 0; off < len(b); off += 4 {
		n += uint64(bits.OnesCount32(changed(load(a, off), le.Uint32(b[off:]))) / 8)
	}
	return n
}

// changed returns a mask of the bytes in which two words differ. It is asked several times
// for each word that goes over.
func changed(a, b uint32) (mask uint32) {
	x := a ^ b
	x |= x >> 4 & 0x0f0f0f0f
	x |= x >> 2 & 0x03030303
	x |= x >> 1
	return x & 0x01010101 * 0xff
}

package aperture

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"time"
)

var le = binary.LittleEndian

// An alias is a slot that shows a page whose bytes are in another slot, its backing slot.

// addAlias makes a slot that shows p an alias, with the bytes of p's backing slot. It
// returns false if the limit on aliases is reached.
func (s *Mapper) addAlias(p *PageState, at slot) bool {
	if s.stats.Aliases.Load() >= int64(s.cfg.Aliases) {
		return false
	}
	base := new([pageSize]byte)
	copy(base[:], s.bytes(p.Backing))
	copy(s.bytes(at), base[:])
	s.link(p, at, base)
	return true
}

func (s *Mapper) link(p *PageState, at slot, base *[pageSize]byte) {
	s.Slots[at].MergeBase = base
	p.Aliases = append(p.Aliases, at)
	s.aliased[p] = struct{}{}
	s.stats.Aliases.Add(1)
}

func (s *Mapper) unlink(p *PageState, at slot) {
	s.Slots[at].MergeBase = nil
	i := slices.Index(p.Aliases, at)
	if p.Aliases = slices.Delete(p.Aliases, i, i+1); len(p.Aliases) == 0 {
		delete(s.aliased, p)
	}
	s.stats.Aliases.Add(-1)
}

// drop ends an alias. Its slot is cleared before it is used again.
func (s *Mapper) drop(p *PageState, at slot) {
	s.unlink(p, at)
	s.vacated = append(s.vacated, at)
}

func (s *Mapper) dropAliases(p *PageState) {
	for len(p.Aliases) > 0 {
		s.drop(p, p.Aliases[len(p.Aliases)-1])
	}
}

// flushAliases makes every alias equal to its backing slot. Mapper.mu is held.
func (s *Mapper) flushAliases() {
	s.flushed.Store(int64(time.Since(s.began)))
	for p := range s.aliased {
		s.flushPage(p)
	}
}

// flushPage makes the aliases of a page equal to its backing slot. The second pass copies
// changes found in later aliases to the earlier ones.
func (s *Mapper) flushPage(p *PageState) {
	merged := false
	for _, at := range p.Aliases {
		merged = s.flush(p, at) || merged
	}
	if merged && len(p.Aliases) > 1 {
		for _, at := range p.Aliases {
			s.flush(p, at)
		}
	}
}

// flush makes an alias equal to its backing slot, and reports whether it copied bytes.
func (s *Mapper) flush(p *PageState, at slot) bool {
	merged, fast := merge(s.bytes(p.Backing), s.bytes(at), s.Slots[at].MergeBase[:])
	s.stats.BytesMerged.Add(uint64(merged))
	if fast {
		s.stats.TooFast.Add(s.window(at), 1)
	}
	return merged > 0
}

// line is how many bytes merge compares at a time.
const line = 64

// mergeTries is how often merge retries a word that changes concurrently.
const mergeTries = 16

// merge makes backing and alias equal: it copies the changes of each since base to the other,
// and updates base. If both changed a byte, backing wins. It returns how many bytes it copied,
// and whether some word changed too fast to follow.
func merge(backing, alias, base []byte) (merged int, fast bool) {
	if bytes.Equal(backing, base) && bytes.Equal(alias, base) {
		return 0, false
	}
	for off := 0; off < len(base); off += line {
		end := min(off+line, len(base))
		h, a, b := backing[off:end], alias[off:end], base[off:end]
		if bytes.Equal(h, b) && bytes.Equal(a, b) {
			continue
		}
		for i := 0; i < len(b); i += 4 {
			n, late := mergeWord(h, a, b, i)
			merged += n
			fast = fast || late
		}
	}
	return merged, fast
}

// mergeWord is merge for the word at off. It compares each side with that side's own last value,
// so that the next try finds a concurrent store. If a word keeps changing, it stores backing's
// value over alias.
func mergeWord(backing, alias, base []byte, off int) (merged int, fast bool) {
	was := le.Uint32(base[off:])
	backingWas, aliasWas := was, was
	for range mergeTries {
		h, a := load(backing, off), load(alias, off)
		inBacking := changed(h, backingWas)
		inAlias := changed(a, aliasWas) &^ inBacking
		v := h&^inAlias | a&inAlias
		if v != h {
			if !swap(backing, off, h, v) {
				continue
			}
			merged += bits.OnesCount32(inAlias) / 8
		}
		backingWas, aliasWas = v, a
		if a == v || swap(alias, off, a, v) {
			merged += bits.OnesCount32(changed(a, v)) / 8
			le.PutUint32(base[off:], v)
			return merged, false
		}
	}
	if backingWas == was && aliasWas == was {
		return merged, true // nothing was moved: the next merge tries again
	}
	h := load(backing, off)
	set(alias, off, h)
	le.PutUint32(base[off:], h)
	return merged, true
}

// changed returns a mask of the bytes in which two words differ.
func changed(a, b uint32) (mask uint32) {
	x := a ^ b
	x |= x >> 4 & 0x0f0f0f0f
	x |= x >> 2 & 0x03030303
	x |= x >> 1
	return x & 0x01010101 * 0xff
}

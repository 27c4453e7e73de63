package aperture

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"time"
)

var le = binary.LittleEndian

// alias is a slot that shows a page whose bytes are in another slot, its backing slot.
type alias struct {
	at        slot
	page      *page
	mem       []byte // what the guest sees there
	mergeBase []byte // what the alias and its backing slot had when they were last equal
}

// addAlias makes a slot that shows p an alias, with the bytes of p's backing slot. It
// returns false if the limit on aliases is reached.
func (s *Set) addAlias(p *page, at slot) bool {
	if s.stats.Aliases.Load() >= int64(s.cfg.Aliases) {
		return false
	}
	base := make([]byte, pageSize)
	copy(base, s.bytes(p.backing))
	a := &alias{at: at, page: p, mem: s.bytes(at), mergeBase: base}
	copy(a.mem, base)
	s.link(a)
	return true
}

func (s *Set) link(a *alias) {
	s.slots[a.at].alias = a
	a.page.aliases = append(a.page.aliases, a)
	s.aliased[a.page] = struct{}{}
	s.stats.Aliases.Add(1)
}

func (s *Set) unlink(a *alias) {
	s.slots[a.at].alias = nil
	list := a.page.aliases[:0]
	for _, o := range a.page.aliases {
		if o != a {
			list = append(list, o)
		}
	}
	if a.page.aliases = list; len(list) == 0 {
		delete(s.aliased, a.page)
	}
	s.stats.Aliases.Add(-1)
}

// drop ends an alias. Its slot is cleared before it is used again.
func (s *Set) drop(a *alias) {
	s.unlink(a)
	s.vacated = append(s.vacated, a.at)
}

func (s *Set) dropAliases(p *page) {
	for len(p.aliases) > 0 {
		s.drop(p.aliases[0])
	}
}

// flushAliases makes every alias equal to its backing slot. Set.mu is held.
func (s *Set) flushAliases() {
	s.flushed.Store(int64(time.Since(s.began)))
	for p := range s.aliased {
		s.flushPage(p)
	}
}

// flushPage makes the aliases of a page equal to its backing slot. The second pass copies
// changes found in later aliases to the earlier ones.
func (s *Set) flushPage(p *page) {
	merged := false
	for _, a := range p.aliases {
		merged = s.flush(a) || merged
	}
	if merged && len(p.aliases) > 1 {
		for _, a := range p.aliases {
			s.flush(a)
		}
	}
}

// flush makes an alias equal to its backing slot, and reports whether it copied bytes.
func (s *Set) flush(a *alias) bool {
	merged, fast := merge(s.bytes(a.page.backing), a.mem, a.mergeBase)
	s.stats.BytesMerged.Add(uint64(merged))
	if fast {
		s.stats.TooFast.Add(s.window(a.at), 1)
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

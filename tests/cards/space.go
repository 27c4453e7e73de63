package cards

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Spaces is a GPU whose address spaces are not tables of its own but pages by address. The card below
// gets them one by one, at an invalidate and not before; or, if it is slow, at once, each change takes
// [applyTime], and one page over another is two changes. A change that is not exact panics, so that its
// guest is quarantined.
type Spaces struct {
	card.GPU
	slow bool
}

const applyTime = 20 * time.Microsecond

// Own and Slow return the GPU with such spaces.
func Own(gpu card.GPU) card.GPU  { return &Spaces{gpu, false} }
func Slow(gpu card.GPU) card.GPU { return &Spaces{gpu, true} }

// NewShare implements card.GPU.
func (s *Spaces) NewShare(c card.ShareConfig) (card.Share, error) {
	own := spaces{slow: s.slow, room: c.Tables, translate: func(addr, _ uint64) (uint64, bool) { return addr, true }}
	return own.over(s.GPU, c)
}

// spaces is a share with the spaces of a guest.
type spaces struct {
	card.Share
	slow      bool
	room      uint64 // for tables of the card below, which nobody sees
	translate func(addr, n uint64) (uint64, bool)
}

// over makes the share of the card below.
func (s *spaces) over(gpu card.GPU, c card.ShareConfig) (*spaces, error) {
	var err error
	c.Tables += uint64(c.Channels) * gf100.InstanceSize // no channel takes from it
	s.Share, err = gpu.NewShare(c)
	return s, err
}

// NewSpace implements card.Share.
func (s *spaces) NewSpace() (card.Space, error) {
	if s.room < shadowpt.DirSize {
		return nil, card.ErrTables
	}
	below, err := s.Share.NewSpace()
	if err != nil {
		return nil, err
	}
	s.room -= shadowpt.DirSize
	return &space{share: s, below: below, now: make(map[uint64]card.Change), was: make(map[uint64]card.Change), spans: make(map[uint64]int)}, nil
}

// Invalidate implements card.Share.
func (s *spaces) Invalidate(list ...card.Space) bool {
	below := make([]card.Space, len(list))
	for i, sp := range list {
		below[i] = sp.(*space).below
		sp.(*space).show(false)
	}
	if !s.Share.Invalidate(below...) {
		return false
	}
	for _, sp := range list {
		sp.(*space).show(true)
	}
	return s.slow || s.Share.Invalidate(below...)
}

// NewChannel implements card.Share.
func (s *spaces) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	c.Space = c.Space.(*space).below
	return s.Share.NewChannel(c, ev)
}

// space is an address space.
type space struct {
	share *spaces
	below card.Space
	now   map[uint64]card.Change // by the address of the page, each of one page
	was   map[uint64]card.Change // of those that changed, what the card below has; Page is 0 if that is nothing
	spans map[uint64]int         // how many pages are in the range of a directory entry
}

// spanSize is the memory for all pages in the range of a directory entry.
const spanSize = shadowpt.SmallTableSize + shadowpt.BigTableSize

// Apply implements card.Space.
func (s *space) Apply(list []card.Change) (done int, err error) {
	for i := range list {
		c := list[i]
		switch {
		case s.share.slow:
			err = s.applySlowly(c)
		case !s.fits(&c):
			err = card.ErrTables
		}
		if err != nil {
			return i, err
		}
		for k := range c.Pages() {
			c.VA, c.Size, c.Addr, c.Addrs = list[i].VA+k*c.Page, c.Page, list[i].PageAddr(k), nil
			s.change(c)
		}
	}
	return len(list), nil
}

// fits reports whether there is memory for a change.
func (s *space) fits(c *card.Change) bool {
	need := uint64(0)
	for span := c.VA / shadowpt.DirSpan; span <= (c.VA+c.Size-1)/shadowpt.DirSpan; span++ {
		if s.spans[span] == 0 {
			need += spanSize
		}
	}
	return c.Unmaps() || need <= s.share.room
}

// change takes over a change of one page.
func (s *space) change(c card.Change) {
	old, mapped := s.now[c.VA]
	if _, seen := s.was[c.VA]; !seen && !s.share.slow {
		s.was[c.VA] = old
	}
	over := c.Flags&shadowpt.Over != 0
	c.Flags &^= shadowpt.Over
	switch {
	case mapped != (over || c.Unmaps()) || mapped && old.Page != c.Page || !c.Unmaps() && (same(&old, &c) || s.overlaps(&c)):
		panic(fmt.Sprintf("cards: %+v, over %t, where %+v is mapped", c, over, old))
	case c.Unmaps():
		delete(s.now, c.VA)
		s.count(c.VA, -1)
		return
	case !over:
		s.count(c.VA, 1)
	}
	s.now[c.VA] = c
}

// same compares changes of one page.
func same(a, b *card.Change) bool { return a.Page == b.Page && a.PTE(0) == b.PTE(0) }

// overlaps reports whether a page of another size is in a page's range.
func (s *space) overlaps(c *card.Change) bool {
	if big, ok := s.now[c.VA&^(shadowpt.BigPage-1)]; ok && big.Page > c.Page {
		return true
	}
	for va := c.VA + shadowpt.SmallPage; va < c.VA+c.Page; va += shadowpt.SmallPage {
		if _, ok := s.now[va]; ok {
			return true
		}
	}
	return false
}

func (s *space) count(va uint64, by int) {
	span := va / shadowpt.DirSpan
	if s.spans[span] == 0 {
		s.share.room -= spanSize
	}
	if s.spans[span] += by; s.spans[span] == 0 {
		s.share.room += spanSize
		delete(s.spans, span)
	}
}

func (s *space) applySlowly(c card.Change) error {
	list := []card.Change{{VA: c.VA, Size: c.Size, Page: c.Page}, c}
	list[1].Flags &^= shadowpt.Over
	if c.Flags&shadowpt.Over == 0 {
		list = list[1:]
	}
	for begin := time.Now(); time.Since(begin) < time.Duration(len(list))*applyTime; {
	}
	_, err := s.below.Apply(list)
	return err
}

// pass gives the card below a change of one page.
func (s *space) pass(c card.Change) {
	ok := true
	if !c.Unmaps() && c.Target == shadowpt.VRAM {
		c.Addr, ok = s.share.translate(c.Addr, c.Size)
	}
	if _, err := s.below.Apply([]card.Change{c}); err != nil || !ok {
		panic(fmt.Sprintf("cards: %+v, memory %t: %v", c, ok, err))
	}
}

// show gives the card below what changed: what goes, and at the second call what comes.
func (s *space) show(comes bool) {
	for _, va := range slices.Sorted(maps.Keys(s.was)) {
		now, was := s.now[va], s.was[va]
		switch {
		case same(&now, &was):
		case comes && now.Page != 0:
			s.pass(now)
		case !comes && was.Page != 0:
			s.pass(card.Change{VA: va, Size: was.Page, Page: was.Page})
			s.was[va] = card.Change{}
		}
	}
	if comes {
		clear(s.was)
	}
}

// Free implements card.Space.
func (s *space) Free() {
	s.below.Free()
	s.share.room += shadowpt.DirSize + uint64(len(s.spans))*spanSize
}

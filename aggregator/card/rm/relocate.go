package rm

import (
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// relocator moves pages of VRAM into windows that a guest's machine maps, which are in memory of the host. A page of the card's memory
// that channels reach stays.
type relocator struct{ gpu *GPU }

// MaxMappings implements card.Relocator.
func (relocator) MaxMappings() int { return card.VRAMMappings() }

// QuiesceChannels implements card.Relocator. Channels of a guest whose spaces map no page that can move cannot meet the
// mover, and go on.
func (r relocator) QuiesceChannels(ids []uint32, do func()) {
	var held []*channel
	for _, id := range ids {
		if ch := r.gpu.channel(id); ch != nil && ch.share.hostPieces.Load() > 0 {
			held = append(held, ch)
			ch.change(func() { ch.held++ })
		}
	}
	for _, ch := range held {
		if !ch.share.await(func() bool { return !ch.leaving() }) {
			ch.share.fail(errors.New("a channel does not leave the engine"))
		}
	}
	defer func() {
		for _, ch := range held {
			ch.change(func() { ch.held-- })
		}
	}()
	do()
}

// Relocate implements card.Relocator.
func (r relocator) Relocate(m card.Relocation) (done uint64, err error) {
	s := r.gpu.share(m.Addr >> shareShift)
	if s == nil || (m.Addr|m.Size|m.Off)%page != 0 {
		return 0, fmt.Errorf("move VRAM %#x+%#x: not whole pages of a guest", m.Addr, m.Size)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	from := m.Addr - s.base()
	old, reached := make(map[uint32]bool), s.reached(from, m.Size)
	for ; done < m.Size && err == nil; done += page {
		if err = s.movePage(from+done, m, done, reached[done/page], old); err != nil {
			break
		}
	}
	if s.hostPieces.Load() > 0 {
		for sp := range s.bySpace {
			s.must(sp.again(func(p *piece) bool {
				return !p.bus && p.object != noObject && p.addr < m.Addr+done && p.addr+p.size > m.Addr
			}))
			s.invalidate(sp)
		}
	}
	if len(old) > 0 {
		s.withdraw(old)
	}
	return done, err
}

// movePage moves a page that channels reach or not. It adds the object of its old place to old.
func (s *share) movePage(addr uint64, m card.Relocation, done uint64, reached bool, old map[uint32]bool) error {
	v := &s.vram
	moved, away := v.moved[addr]
	if addr >= v.size || !away && addr < v.high && reached {
		return fmt.Errorf("move VRAM %#x: a page of the card's memory has one place while channels reach it", addr)
	}
	v.touch(addr, page) // whoever maps the window writes there
	was, to := moved, place{m.To, m.Off + done, noObject}
	if !away {
		was = v.own(addr)
	}
	if m.To == nil {
		to = v.own(addr)
	}
	if !m.NoCopy { // whoever reads meanwhile finds the bytes where they were, or where they are
		var bytes [page]byte
		if !s.each(addr, page, func(mem []byte) bool { copy(bytes[:], mem); return true }) || !s.put(addr, to, &bytes) {
			return fmt.Errorf("move VRAM %#x: the memory cannot be reached", addr)
		}
	}
	if err := s.setPlace(addr, to); err != nil {
		return err
	}
	if away && moved.object != noObject {
		old[moved.object] = true
	}
	delete(v.moved, addr)
	if m.To != nil {
		v.moved[addr] = to
	}
	if !m.NoCopy && !s.put(addr, was, new([page]byte)) {
		return fmt.Errorf("move VRAM %#x: its old place cannot be cleared", addr)
	}
	return nil
}

// own is the place that a page has at first: without a file it is in the card's memory.
func (v *vram) own(addr uint64) place {
	if addr < v.high {
		return place{object: noObject}
	}
	return place{v.host, addr - v.high, noObject}
}

// put writes to a place of a page.
func (s *share) put(addr uint64, to place, p *[page]byte) (ok bool) {
	if to.file == nil {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if card.MemoryFault(recover()) {
				ok = false
			}
		}()
		copy(s.vram.inCard[addr:], p[:])
		return true
	}
	_, err := unix.Pwrite(int(to.file.Fd()), p[:], int64(to.off))
	return err == nil
}

// reached says of each page of a range whether a space maps it in the card's memory.
func (s *share) reached(from, n uint64) []bool {
	out := make([]bool, n/page)
	if from >= s.vram.high {
		return out
	}
	for sp := range s.bySpace {
		sp.record.each(func(p *piece) {
			if p.object == cardObject {
				for at := max(p.off, from); at < min(p.off+p.size, from+n); at += page {
					out[(at-from)/page] = true
				}
			}
		})
	}
	return out
}

// setPlace has accesses of the server find a page in a place.
func (s *share) setPlace(addr uint64, to place) error {
	v := &s.vram
	if addr < v.high {
		return v.setAway(addr, to.file, to.off)
	}
	err := remap(v.inHost[addr-v.high:][:page:page], to.file, to.off)
	v.moves.Add(1)
	return err
}

// registered returns the object of a page that has another place. share.changing is held.
func (s *share) registered(addr uint64, to place) uint32 {
	if to.object == noObject {
		object := s.objects.take()
		if err := s.worker.Register(object, to.file, to.off, page); err != nil {
			s.objects.give(object)
			s.gpu.cfg.Log("guest %d: a page of a window is out of the card's reach: %v", s.cfg.Number, err)
			return noObject
		}
		to.object = object
		s.vram.moved[addr] = to
	}
	return to.object
}

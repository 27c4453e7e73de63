package rm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// relocator moves pages of VRAM into windows that a guest's machine maps, which are in memory of the host. A page of the card's memory
// that channels reach stays.
type relocator struct{ gpu *GPU }

// MaxMappings implements card.Relocator.
func (relocator) MaxMappings() int { return card.VRAMMappings() }

// QuiesceChannels implements card.Relocator. Channels whose spaces map no page that can move cannot meet the mover, and
// go on.
func (r relocator) QuiesceChannels(ids []uint32, do func()) {
	var held []*channel
	for _, id := range ids {
		if ch := r.gpu.channel(id); ch != nil && ch.share.hostPieces.Load() > 0 {
			held = append(held, ch)
			ch.change(func() { ch.held++ })
		}
	}
	for _, ch := range held {
		ch.share.await(func() bool { return !ch.leaving() })
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
	old := make(map[uint32]bool)
	for ; done < m.Size && err == nil; done += page {
		if err = s.movePage(from+done, m, done, old); err != nil {
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

// movePage moves a page. It adds the object of its old place to old.
func (s *share) movePage(addr uint64, m card.Relocation, done uint64, old map[uint32]bool) error {
	v := &s.vram
	was, away := v.moved[addr]
	if addr >= v.size || !away && addr < v.high && s.reached(addr) {
		return fmt.Errorf("move VRAM %#x: a page of the card's memory has one place while channels reach it", addr)
	}
	v.touch(addr, page) // whoever maps the window writes there
	var bytes [page]byte
	if !m.NoCopy && !s.each(addr, page, func(mem []byte) bool { copy(bytes[:], mem); clear(mem); return true }) {
		return fmt.Errorf("move VRAM %#x: the memory cannot be reached", addr)
	}
	if err := s.setPlace(addr, m.To, m.Off+done); err != nil {
		return err
	}
	if !m.NoCopy && !s.each(addr, page, func(mem []byte) bool { copy(mem, bytes[:]); return true }) {
		return fmt.Errorf("move VRAM %#x: its new place cannot be reached", addr)
	}
	if away && was.object != noObject {
		old[was.object] = true
	}
	delete(v.moved, addr)
	if m.To != nil {
		v.moved[addr] = place{m.To, m.Off + done, noObject}
	}
	return nil
}

// reached reports whether a space maps a page of the card's memory.
func (s *share) reached(addr uint64) (is bool) {
	for sp := range s.bySpace {
		sp.record.each(func(p *piece) { is = is || p.object == cardObject && p.off <= addr && addr < p.off+p.size })
	}
	return is
}

// setPlace has accesses of the server find a page in a file; nil is its own place.
func (s *share) setPlace(addr uint64, to *os.File, off uint64) error {
	v := &s.vram
	if addr >= v.high {
		if to == nil {
			to, off = v.host, addr-v.high
		}
		return remap(v.inHost[addr-v.high:][:page:page], to, off)
	}
	var at *[page]byte
	if to != nil {
		mem, err := unix.Mmap(int(to.Fd()), int64(off), page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
		at = (*[page]byte)(mem)
	}
	if was := v.setAway(addr, at); was != nil {
		return unix.Munmap(was[:])
	}
	return nil
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

package rm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// relocator moves pages of the part of VRAM that is in memory of the host, for windows that a guest's machine maps. Pages in the
// card's memory stay, and accesses through a window trap.
type relocator struct{ gpu *GPU }

// MaxMappings implements card.Relocator.
func (relocator) MaxMappings() int { return 1 << 14 }

// QuiesceChannels implements card.Relocator. Channels whose spaces map none of the pages that can move cannot meet the
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
	at, ok := v.hostOffset(addr)
	if !ok {
		return fmt.Errorf("move VRAM %#x: the card's own memory has one place, which is from %#x to %#x", addr, v.low, v.high)
	}
	v.touch(addr, page) // whoever maps the window writes there
	mem := v.inHost[at:][:page:page]
	to, off := m.To, m.Off+done
	if to == nil {
		to, off = v.host, at
	}
	if !m.NoCopy {
		if err := copyPage(to, off, mem); err != nil {
			return err
		}
	}
	if err := remap(mem, to, off); err != nil {
		return err
	}
	if was, ok := v.moved[addr]; ok && was.object != noObject {
		old[was.object] = true
	}
	delete(v.moved, addr)
	if m.To != nil {
		v.moved[addr] = place{to, off, noObject}
	}
	return nil
}

// copyPage copies a page to a file, and clears it.
func copyPage(to *os.File, off uint64, mem []byte) error {
	if _, err := unix.Pwrite(int(to.Fd()), mem, int64(off)); err != nil {
		return err
	}
	clear(mem)
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

package rm

import (
	"runtime/debug"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// MapDMA implements card.DMA. Memory without a file of its own, or that the driver refuses, is out of the card's reach.
func (g *GPU) MapDMA(addr uint64, m card.Mapping) error {
	s := g.share(uint64(m.Owner))
	if s == nil {
		return nil // a guest without a share has no channels
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.ram.Map(addr, m); err != nil {
		return err
	}
	s.lowest.Store(max(s.lowest.Load(), ^addr))
	s.highest.Store(max(s.highest.Load(), addr+uint64(len(m.Mem))-1))
	n := uint64(len(m.Mem)) &^ (page - 1)
	if m.File == nil || n == 0 || (addr|m.Off)%page != 0 || s.dead.Load() {
		return nil
	}
	object := s.objects.take()
	if err := s.worker.Register(object, m.File, m.Off, n); err != nil {
		s.objects.give(object)
		g.cfg.Log("guest %d: memory at %#x of %d KiB is out of the card's reach: %v", s.cfg.Number, addr, n>>10, err)
		return nil
	}
	at, _ := s.ram.At(addr, false)
	s.ramObjects[at] = object
	for sp := range s.bySpace { // what tables map already
		err := sp.again(func(p *piece) bool { return p.bus && p.object == noObject && p.addr < addr+n && p.addr+p.size > addr })
		if err != nil {
			g.cfg.Log("guest %d: memory at %#x is not mapped again: %v", s.cfg.Number, addr, err)
		}
	}
	return nil
}

// UnmapDMA implements card.DMA.
func (g *GPU) UnmapDMA(addr, n uint64) {
	for _, s := range g.everyShare() {
		if addr <= s.highest.Load() && n > 0 && addr+(n-1) >= ^s.lowest.Load() { // else it need not wait for another guest's calls
			s.unmapDMA(addr, n)
		}
	}
}

func (s *share) unmapDMA(addr, n uint64) {
	s.changing.Lock()
	defer s.changing.Unlock()
	gone := make(map[uint32]bool)
	removed := s.ram.Unmap(addr, n)
	for _, m := range removed {
		if object, ok := s.ramObjects[m]; ok {
			gone[object] = true
			delete(s.ramObjects, m)
		}
	}
	if len(removed) == 0 {
		return
	}
	s.reading.Lock() // waits for the copies under way
	//lint:ignore SA2001 taking the lock is the wait
	s.reading.Unlock()
	if len(gone) > 0 {
		s.withdraw(gone)
	}
}

// withdraw unmaps objects everywhere and frees them. share.changing is held.
func (s *share) withdraw(gone map[uint32]bool) {
	for sp := range s.bySpace {
		s.must(sp.again(func(p *piece) bool { return gone[p.object] }))
		s.invalidate(sp)
	}
	for object := range gone {
		if !s.dead.Load() {
			s.must(s.worker.Free(object))
		}
		s.objects.give(object)
	}
}

// locate returns where a piece has its memory, and how much lies together from there. share.changing is held.
func (s *share) locate(x *piece) (object uint32, off, together uint64) {
	if x.flags&shadowpt.Supervisor != 0 {
		return noObject, 0, x.size
	}
	if !x.bus {
		return s.locateVRAM(x.addr-s.base(), x.size)
	}
	m, off := s.ram.At(x.addr, x.flags&shadowpt.ReadOnly == 0)
	object, ok := s.ramObjects[m]
	if together = uint64(0); m != nil {
		together = (uint64(len(m.Mem)) - off) &^ (page - 1)
	}
	if !ok || together == 0 {
		return noObject, 0, page
	}
	return object, off, together
}

func (s *share) locateVRAM(addr, most uint64) (object uint32, off, together uint64) {
	v := &s.vram
	if addr >= v.size {
		return noObject, 0, page
	}
	if to, ok := v.moved[addr]; ok {
		return s.registered(addr, to), 0, page
	}
	if addr < v.high {
		return cardObject, addr, v.together(addr, most)
	}
	if together = v.size - addr; len(v.moved) > 0 {
		together = page
	}
	return hostObject, addr - v.high, together
}

// count counts pieces of records.
func (s *share) count(by int, p *piece) {
	s.pieces += by
	if !p.bus && p.object != noObject && p.object != cardObject {
		s.hostPieces.Add(int64(by))
	}
}

// readAt copies the guest's memory.
func (s *share) readAt(addr uint64, bus bool, p []byte) (ok bool) {
	if !bus {
		return s.each(addr-s.base(), uint64(len(p)), func(mem []byte) bool { p = p[copy(p, mem):]; return true })
	}
	s.reading.RLock()
	defer s.reading.RUnlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if card.MemoryFault(recover()) {
			ok = false
		}
	}()
	for len(p) > 0 {
		m, off := s.ram.At(addr, false)
		if m == nil {
			return false
		}
		n := min(uint64(len(m.Mem))-off, uint64(len(p)))
		if !m.Reach(off, n) {
			return false
		}
		copy(p, m.Mem[off:off+n])
		addr, p = addr+n, p[n:]
	}
	return true
}

package rm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// An address of VRAM is the number of a share above shareShift, and an offset in its memory. The end of that memory is in
// memory of the host: there drivers keep page tables, which the server reads all the time, and a read from the card
// takes a microsecond.
const (
	shareShift = 48
	hostBytes  = 64 << 20
	page       = 4 << 10
	bigPage    = 64 << 10
	largePage  = 2 << 20
)

// Objects of a share that every one has. Those of RAM and of channels follow.
const (
	noObject   = ^uint32(0) // of pages that the card does not reach
	cardObject = 0
	hostObject = 1
)

// vram is the memory of a share.
type vram struct {
	size   uint64 // bytes
	high   uint64 // what is below is in the card's memory
	taken  uint64 // of the card
	inCard []byte
	inHost []byte
	host   *os.File
	moved  map[uint64]place        // pages that have another place; share.changing
	away   []atomic.Pointer[block] // those of the card's part, by 2 MiB
	// touched has a bit for each 2 MiB that may have other bytes than zeros: the guest's tables mapped it, or it was
	// written through the server. Any goroutine sets bits.
	touched []atomic.Uint64
	moves   atomic.Uint64 // of pages: a reader that meets one reads again
}

// touch notes that n bytes at off may be written.
func (v *vram) touch(off, n uint64) {
	for at := off / largePage; at*largePage < off+n && at/64 < uint64(len(v.touched)); at++ {
		if bit := uint64(1) << (at % 64); v.touched[at/64].Load()&bit == 0 {
			v.touched[at/64].Or(bit)
		}
	}
}

// block has the pages of 2 MiB of the card's part that have another place, mapped at addresses of their own. No mapping can replace
// a page of the driver's, so accesses look here. Pages that are together in a file are one mapping.
type block struct {
	mem  []byte // 2 MiB of addresses
	away [largePage / page / 64]atomic.Uint64
}

func (b *block) has(addr uint64) bool {
	n := addr % largePage / page
	return b != nil && b.away[n/64].Load()>>(n%64)&1 != 0
}

// cardAt returns the memory at an address of the card's part, up to where it may lie elsewhere.
func (v *vram) cardAt(addr uint64) []byte {
	b, mem := v.away[addr/largePage].Load(), v.inCard[addr/largePage*largePage:][:largePage]
	if b == nil {
		return mem[addr%largePage:]
	}
	if b.has(addr) {
		mem = b.mem
	}
	return mem[addr%largePage : addr%largePage/page*page+page]
}

// setAway notes where a page of the card's part is, nil if it is in the card's memory.
func (v *vram) setAway(addr uint64, to *os.File, off uint64) (err error) {
	b := v.away[addr/largePage].Load()
	if b == nil {
		b = new(block)
		if b.mem, err = unix.Mmap(-1, 0, largePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE); err != nil {
			return err
		}
		v.away[addr/largePage].Store(b)
	}
	n := addr % largePage / page
	if to == nil {
		b.away[n/64].And(^(1 << (n % 64)))
		v.moves.Add(1)
		return vacate(b.mem[n*page:][:page:page])
	}
	if err := remap(b.mem[n*page:][:page:page], to, off); err != nil {
		return err
	}
	b.away[n/64].Or(1 << (n % 64))
	v.moves.Add(1)
	return nil
}

// together is how much from an address of the card's part on is in the card's memory, of at most so much.
func (v *vram) together(addr, most uint64) uint64 {
	end := min(v.high, addr+most)
	for at := addr; at < end; {
		b := v.away[at/largePage].Load()
		if b == nil {
			at = at/largePage*largePage + largePage
			continue
		}
		if b.has(at) {
			return at - addr
		}
		at += page
	}
	return end - addr
}

// place is where a page has its bytes.
type place struct {
	file   *os.File
	off    uint64
	object uint32 // noObject until a space maps it
}

// memfd makes memory of the host that a process can register.
func memfd(name string, n uint64) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("umbra-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("create a memory file for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Truncate(int64(n))
	var mem []byte
	if err == nil {
		mem, err = mapFile(f, n)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("memory file of %d KiB for %s: %w", n>>10, name, err)
	}
	return f, mem, nil
}

func mapFile(f *os.File, n uint64) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// AllocVRAM implements card.Share. It may be called once.
func (s *share) AllocVRAM(size, align uint64) ([]card.Run, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	v := &s.vram
	if v.size != 0 || size == 0 || size%page != 0 || align > largePage {
		return nil, errors.New("a share takes VRAM once, in whole pages")
	}
	v.moved = make(map[uint64]place)
	v.high = (size - min(size, hostBytes)) &^ (largePage - 1)
	v.away = make([]atomic.Pointer[block], v.high/largePage)
	host := size - v.high
	var err error
	if v.host, v.inHost, err = memfd("vram", host); err != nil {
		return nil, err
	}
	if err = s.worker.Register(hostObject, v.host, 0, host); err != nil {
		return nil, err
	}
	if v.high > 0 {
		f, err := s.worker.NewVRAM(cardObject, v.high)
		if err != nil {
			return nil, fmt.Errorf("%d MiB of the card's memory, of which %d MiB are free: %w", v.high>>20, s.gpu.FreeBytes()>>20, err)
		}
		v.taken = v.high
		s.gpu.take(v.taken)
		mem, err := mapFile(f, v.high)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("map %d MiB of the card's memory: %w", v.high>>20, err)
		}
		v.inCard = mem
	}
	v.touched = make([]atomic.Uint64, (size/largePage+64)/64)
	v.size = size
	if err := s.checkClear(); err != nil {
		return nil, err
	}
	return []card.Run{{Addr: s.base(), Size: size}}, nil
}

// checkClear clears the card's memory unless the driver did, which it does before it gives memory to another client. One word of
// each large page shows that.
func (s *share) checkClear() error {
	for at := uint64(0); at < s.vram.high; at += largePage {
		var b [8]byte
		if !s.each(at, 8, func(mem []byte) bool { copy(b[:], mem); return true }) || b != [8]byte{} {
			s.vram.touch(0, s.vram.high)
			return s.scrub(0, s.vram.high)
		}
	}
	return nil
}

func (s *share) base() uint64 { return uint64(s.cfg.Number) << shareShift }

// release gives memory back, of a share whose process has ended. Of one that was lost somebody may still use the
// server's mappings.
func (v *vram) release(lost bool) {
	if lost {
		return
	}
	for i := range v.away {
		if b := v.away[i].Load(); b != nil {
			unix.Munmap(b.mem)
		}
	}
	for _, mem := range [][]byte{v.inCard, v.inHost} {
		if mem != nil {
			unix.Munmap(mem)
		}
	}
	if v.host != nil {
		v.host.Close()
	}
	v.inCard, v.inHost = nil, nil
}

// each calls f with the parts of n bytes at off, until it returns false. An access fails if the card has fallen off the
// bus, or the share's process has ended and the driver took the mapping back.
func (s *share) each(off, n uint64, f func(mem []byte) bool) (ok bool) {
	v := &s.vram
	if off > v.size || n > v.size-off {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if card.MemoryFault(recover()) {
			ok = false
		}
	}()
	for n > 0 {
		var mem []byte
		if off < v.high {
			if s.dead.Load() {
				return false
			}
			mem = v.cardAt(off)
		} else {
			mem = v.inHost[off-v.high:]
		}
		mem = mem[:min(n, uint64(len(mem)))]
		if !f(mem) {
			return false
		}
		off, n = off+uint64(len(mem)), n-uint64(len(mem))
	}
	return true
}

func (g *GPU) each(addr, n uint64, f func(mem []byte) bool) bool {
	s := g.share(addr >> shareShift)
	return s != nil && s.each(addr&(1<<shareShift-1), n, f)
}

// ReadVRAM implements card.Memory.
func (g *GPU) ReadVRAM(addr uint64, p []byte) bool {
	s := g.share(addr >> shareShift)
	for s != nil { // a page may move meanwhile
		moves, left := s.vram.moves.Load(), p
		ok := s.each(addr&(1<<shareShift-1), uint64(len(p)), func(mem []byte) bool { left = left[copy(left, mem):]; return true })
		if s.vram.moves.Load() == moves {
			return ok
		}
	}
	return false
}

// WriteVRAM implements card.Memory.
func (g *GPU) WriteVRAM(addr uint64, p []byte) bool {
	if s := g.share(addr >> shareShift); s != nil {
		s.vram.touch(addr&(1<<shareShift-1), uint64(len(p)))
	}
	return g.each(addr, uint64(len(p)), func(mem []byte) bool { p = p[copy(mem, p):]; return true })
}

// SameVRAM implements card.Memory.
func (g *GPU) SameVRAM(addr uint64, p []byte) bool {
	return g.each(addr, uint64(len(p)), func(mem []byte) bool {
		same := bytes.Equal(mem, p[:len(mem)])
		p = p[len(mem):]
		return same
	})
}

// ScrubVRAM implements card.Memory. Most of a guest's memory was never written since the last time.
func (g *GPU) ScrubVRAM(addr, n uint64) error {
	s := g.share(addr >> shareShift)
	if s == nil {
		return fmt.Errorf("clear VRAM %#x+%#x: it is nobody's", addr, n)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.scrub(addr-s.base(), n)
}

// scrub clears n bytes at from. share.changing is held.
func (s *share) scrub(from, n uint64) error {
	for at := from; at < from+n; {
		end := min(at&^(largePage-1)+largePage, from+n)
		i, bit := at/largePage/64, uint64(1)<<(at/largePage%64)
		if i < uint64(len(s.vram.touched)) && s.vram.touched[i].Load()&bit == 0 {
			at = end
			continue
		}
		if end-at == largePage && len(s.bySpace) == 0 { // else a space may map it
			s.vram.touched[i].And(^bit)
		}
		if !s.each(at, end-at, func(mem []byte) bool { clear(mem); return true }) {
			return fmt.Errorf("clear VRAM %#x+%#x of guest %d: the memory cannot be reached", from, n, s.cfg.Number)
		}
		at = end
	}
	return nil
}

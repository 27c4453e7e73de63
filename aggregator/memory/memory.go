// Package memory is one guest's memory as the guest addresses it: its VRAM through its extents of
// the card's, and its system memory through its DMA map.
//
// The package has no goroutines. Memory.moving is read-locked by each access to VRAM, except Peek,
// and write-locked while pages of it move. The mover takes leaves and the card's locks in it.
package memory

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/dma"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Watcher is told of each write to the guest's VRAM. No lock of this package is held.
type Watcher interface {
	Wrote(addr, n uint64)
}

// Memory is one guest's memory. Any goroutine may use it.
type Memory struct {
	gpu     card.Memory
	extents vram.Extents
	dma     *dma.Window
	watcher Watcher
	words   sync.Pool // of *[4]byte

	moving sync.RWMutex
}

// New returns a guest's memory.
func New(gpu card.Memory, e vram.Extents, d *dma.Window, w Watcher) *Memory {
	m := &Memory{gpu: gpu, extents: e, dma: d, watcher: w}
	m.words.New = func() any { return new([4]byte) }
	return m
}

// Size is the size of the VRAM in bytes.
func (m *Memory) Size() uint64 { return m.extents.Size() }

// Extents returns where the VRAM lies on the card.
func (m *Memory) Extents() []vram.Extent { return m.extents.List() }

// Read copies memory to p. It returns false if any of it is not the guest's.
func (m *Memory) Read(t shadowpt.Target, addr uint64, p []byte) bool {
	if t == shadowpt.VRAM {
		return m.eachRun(addr, p, m.gpu.ReadVRAM)
	}
	return t.System() && m.dma.Read(addr, p)
}

// Write copies p to memory. Where it fails, bytes before the failure may be written.
func (m *Memory) Write(t shadowpt.Target, addr uint64, p []byte) bool {
	if t != shadowpt.VRAM {
		return t.System() && m.dma.Write(addr, p)
	}
	defer m.watcher.Wrote(addr, uint64(len(p)))
	return m.eachRun(addr, p, m.gpu.WriteVRAM)
}

// ReadTable implements shadowpt.Guest.
func (m *Memory) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool { return m.Read(t, addr, p) }

// SameTable implements shadowpt.Guest.
func (m *Memory) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	if t == shadowpt.VRAM {
		return m.eachRun(addr, p, m.gpu.SameVRAM)
	}
	return t.System() && m.dma.Same(addr, p)
}

// SameTables implements shadowpt.Guest. What moves pages waits for the comparison of all that lies
// in VRAM, some 20 us.
func (m *Memory) SameTables(parts []shadowpt.Part) {
	m.sameVRAM(parts)
	for i := range parts {
		if p := &parts[i]; p.Target != shadowpt.VRAM {
			p.Same = m.SameTable(p.Target, p.Addr, p.Bytes)
		}
	}
}

func (m *Memory) sameVRAM(parts []shadowpt.Part) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	for i := range parts {
		if p := &parts[i]; p.Target == shadowpt.VRAM {
			p.Same = m.runs(p.Addr, p.Bytes, m.gpu.SameVRAM)
		}
	}
}

// Translate implements shadowpt.Guest.
func (m *Memory) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	if t == shadowpt.VRAM {
		return m.extents.Translate(addr, n)
	}
	return m.dma.At(addr), t.System() && m.dma.Covers(addr, n, write)
}

// eachRun is runs while no pages move.
func (m *Memory) eachRun(addr uint64, p []byte, f func(addr uint64, p []byte) bool) bool {
	m.moving.RLock()
	defer m.moving.RUnlock()
	return m.runs(addr, p, f)
}

// runs calls f with each run of VRAM that is together on the card, and its part of p, until it
// returns false. Memory.moving is held.
func (m *Memory) runs(addr uint64, p []byte, f func(addr uint64, p []byte) bool) bool {
	if addr >= m.extents.Size() || uint64(len(p)) > m.extents.Size()-addr {
		return false
	}
	for len(p) > 0 {
		at, together, _ := m.extents.At(addr)
		n := min(uint64(len(p)), together)
		if !f(at, p[:n]) {
			return false
		}
		addr, p = addr+n, p[n:]
	}
	return true
}

// Peek reads a word of VRAM at once, even while pages move: it finds the word where the page was
// or where it is.
func (m *Memory) Peek(addr uint64) (v uint32, ok bool) {
	at, ok := m.extents.Translate(addr, 4)
	if !ok {
		return 0, false
	}
	b := m.words.Get().(*[4]byte)
	defer m.words.Put(b)
	ok = m.gpu.ReadVRAM(at, b[:])
	return binary.LittleEndian.Uint32(b[:]), ok
}

// Word reads a word of VRAM. With settled it waits while pages move; else it is Peek.
func (m *Memory) Word(addr uint64, settled bool) (v uint32, ok bool) {
	if !settled {
		return m.Peek(addr)
	}
	var b [4]byte
	ok = m.Read(shadowpt.VRAM, addr, b[:])
	return binary.LittleEndian.Uint32(b[:]), ok
}

// Read64 implements shadowpt.Memory for the guest's own tables.
func (m *Memory) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	var b [8]byte
	ok := m.Read(t, addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), ok
}

// A Word is a word of a structure in memory.
type Word struct {
	Offset uint64
	Value  uint32
}

// Update writes those words of a structure of n bytes in VRAM that differ. It changes nothing that is
// equal, because each write makes the card check every waiting semaphore.
func (m *Memory) Update(addr, n uint64, words []Word) {
	if m.update(addr, words) {
		m.watcher.Wrote(addr, n)
	}
}

func (m *Memory) update(addr uint64, words []Word) (wrote bool) {
	m.moving.RLock() // a write to a page that moves would be lost
	defer m.moving.RUnlock()
	b := m.words.Get().(*[4]byte)
	defer m.words.Put(b)
	for _, w := range words {
		at, ok := m.extents.Translate(addr+w.Offset, 4)
		if !ok {
			continue
		}
		m.gpu.ReadVRAM(at, b[:])
		if binary.LittleEndian.Uint32(b[:]) != w.Value {
			binary.LittleEndian.PutUint32(b[:], w.Value)
			wrote = m.gpu.WriteVRAM(at, b[:]) || wrote
		}
	}
	return wrote
}

// Scrub clears all of the VRAM.
func (m *Memory) Scrub() error {
	for _, e := range m.extents.List() {
		if err := m.gpu.ScrubVRAM(e.Card, e.Size); err != nil {
			return fmt.Errorf("clear %d MiB of VRAM: %w", e.Size>>20, err)
		}
		m.watcher.Wrote(e.Guest, e.Size)
	}
	return nil
}

// Move runs do, which moves pages, while nobody accesses the VRAM here.
func (m *Memory) Move(do func()) {
	m.moving.Lock()
	defer m.moving.Unlock()
	do()
}

// Settle waits until no pages move.
func (m *Memory) Settle() {
	m.moving.RLock()
	//lint:ignore SA2001 taking the lock is the wait
	m.moving.RUnlock()
}

// Relocate moves pages of the VRAM as card.Relocator does, extent by extent. It is called inside
// Move.
func (m *Memory) Relocate(to card.Relocator, r card.Relocation) (done uint64, err error) {
	for done < r.Size && err == nil {
		at, together, ok := m.extents.At(r.Addr + done)
		if !ok {
			return done, nil
		}
		part := r
		part.Addr, part.Size, part.Off = at, min(r.Size-done, together), r.Off+done
		var n uint64
		n, err = to.Relocate(part)
		done += n
	}
	return done, err
}

// Package dma gives each guest a window of the card's bus addresses, so that equal addresses
// of two guests are different for the card. A guest's memory is mapped twice: for the card,
// at its addresses, and in the guest's [Window], for accesses of the process itself.
//
// The package has no goroutines. Locks, for each window, in the order they are taken:
//
//  1. Window.changing: one change at a time. UnmapDMA waits with it for the card.
//  2. Window.mu, during one copy (read side).
package dma

import (
	"bytes"
	"math/bits"
	"runtime/debug"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// MaxGuests is how many guests a card can tell apart. Options.Guests may be less.
const MaxGuests = card.MaxShares

// cardBusBits is how many bits a bus address has in the chip's page-table entries.
const cardBusBits = 40

// Windows divides a card's bus addresses.
type Windows struct {
	shift  uint // a bus address >> shift is the guest's number
	guests [MaxGuests]Window
}

// Window is the part of one guest, whose addresses begin at 0.
type Window struct {
	owner      uint8  // number of the guest
	base, size uint64 // for the card
	card       card.DMA

	changing sync.Mutex
	mu       sync.RWMutex
	mappings card.Mappings
}

// New divides the addresses of c among so many guests, 1 to MaxGuests.
func New(guests int, c card.DMA) *Windows {
	b := &Windows{shift: uint(cardBusBits - bits.Len(uint(guests-1)))}
	for i := range b.guests {
		w := &b.guests[i]
		w.owner, w.base, w.size, w.card = uint8(i), b.At(i, 0), b.Size(), c
	}
	return b
}

// Guest returns a guest's window.
func (b *Windows) Guest(index int) *Window { return &b.guests[index] }

// Size returns how many bytes of each guest's memory the card can reach.
func (b *Windows) Size() uint64 { return 1 << b.shift }

// At returns the card's address of a guest's address inside its window.
func (b *Windows) At(index int, addr uint64) uint64 { return uint64(index)<<b.shift | addr }

// Clip returns how many of the n bytes at addr are inside the window.
func (w *Window) Clip(addr, n uint64) uint64 { return min(n, w.size-min(addr, w.size)) }

// At returns the card's address of an address inside the window.
func (w *Window) At(addr uint64) uint64 { return w.base | addr }

// MapDMA implements card.DMA. What lies beyond the window is out of reach.
func (w *Window) MapDMA(addr uint64, m card.Mapping) error {
	n := w.Clip(addr, uint64(len(m.Mem)))
	if m.Mem, m.Owner = m.Mem[:n], w.owner; n == 0 {
		return nil
	}
	w.changing.Lock()
	defer w.changing.Unlock()
	err := w.mappings.Map(addr, m)
	if err != nil {
		return err
	}
	if err = w.card.MapDMA(w.At(addr), m); err != nil {
		w.forget(addr, n)
	}
	return err
}

// UnmapDMA implements card.DMA.
func (w *Window) UnmapDMA(addr, n uint64) {
	if n = w.Clip(addr, n); n == 0 {
		return
	}
	w.changing.Lock()
	defer w.changing.Unlock()
	if w.forget(addr, n) {
		w.card.UnmapDMA(w.At(addr), n)
	}
}

func (w *Window) forget(addr, n uint64) bool {
	if len(w.mappings.Unmap(addr, n)) == 0 {
		return false
	}
	w.mu.Lock() // waits for the copies under way
	defer w.mu.Unlock()
	return true
}

// Covers reports whether the n bytes at addr are mapped and permit the access.
func (w *Window) Covers(addr, n uint64, write bool) bool {
	for n > 0 {
		m, off := w.mappings.At(addr, write)
		if m == nil {
			return false
		}
		here := min(n, uint64(len(m.Mem))-off)
		addr, n = addr+here, n-here
	}
	return true
}

// Read copies memory at addr to p. It returns false if some of it cannot be read.
func (w *Window) Read(addr uint64, p []byte) bool {
	return w.each(addr, p, false, func(mem, p []byte) bool { copy(p, mem); return true })
}

// Write copies p to memory at addr. It returns false if some of it cannot be written.
func (w *Window) Write(addr uint64, p []byte) bool {
	return w.each(addr, p, true, func(mem, p []byte) bool { copy(mem, p); return true })
}

// Same reports whether the bytes at addr are p.
func (w *Window) Same(addr uint64, p []byte) bool { return w.each(addr, p, false, bytes.Equal) }

// each calls f with each mapping's part of the memory at addr and of p, until it returns
// false. The memory belongs to another process, which may truncate its file at any time;
// such an access fails like one on a bus.
func (w *Window) each(addr uint64, p []byte, write bool, f func(mem, p []byte) bool) (ok bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if card.MemoryFault(recover()) {
			ok = false
		}
	}()
	for len(p) > 0 {
		m, off := w.mappings.At(addr, write)
		if m == nil {
			return false
		}
		mem := m.Mem[off:]
		mem = mem[:min(len(mem), len(p))]
		if !m.Reach(off, uint64(len(mem))) || !f(mem, p[:len(mem)]) {
			return false
		}
		if write && m.Wrote != nil {
			m.Wrote(off, uint64(len(mem)))
		}
		addr, p = addr+uint64(len(mem)), p[len(mem):]
	}
	return true
}

// Package dma gives each guest a window of the card's bus addresses, so that equal addresses
// of two guests are different for the card.
//
// A step of the card pins no guest's memory. It locks a guest's map only during the look-up
// in its window. The result stays valid until the step ends: whoever takes memory away first
// removes it from the map and then waits for the steps that began before (see [Windows.Barrier]).
// So a guest that changes its map never waits for the steps of others and never delays them.
//
// The package has no goroutines. Its one lock, Windows.steps, is read-locked by each step of
// the card.
package dma

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// MaxGuests is how many guests a card can tell apart: the width of the owner field in
// RAMFC. Options.Guests may be less.
const MaxGuests = gf100.Owners

// cardBusBits is how many bits a bus address has in the chip's page-table entries.
const cardBusBits = 40

// Windows is the memory of all guests as the card sees it. It implements card.Bus.
type Windows struct {
	shift uint // a bus address >> shift is the guest's number
	host  [MaxGuests]atomic.Pointer[memory]

	// steps is read-locked by each step. Barrier takes the write side.
	steps sync.RWMutex
}

type memory struct{ card.Bus }

// New makes windows for so many guests, 1 to MaxGuests.
func New(guests int) *Windows { return &Windows{shift: uint(cardBusBits - bits.Len(uint(guests-1)))} }

// Size returns how many bytes of each guest's memory the card can reach.
func (b *Windows) Size() uint64 { return 1 << b.shift }

// At returns the card's address of a guest's address inside its window.
func (b *Windows) At(index int, addr uint64) uint64 { return uint64(index)<<b.shift | addr }

// Of returns the guest whose window holds n bytes at the card's address addr, and the
// guest's own address of them.
func (b *Windows) Of(addr, n uint64) (index uint64, guestAddr uint64, ok bool) {
	index, guestAddr = addr>>b.shift, addr&(b.Size()-1)
	return index, guestAddr, index < MaxGuests && n <= b.Size()-guestAddr
}

// Attach puts a guest's memory into its window, or removes it (nil). Steps under way may
// still use what was there.
func (b *Windows) Attach(index int, m card.Bus) {
	if m == nil {
		b.host[index].Store(nil)
		return
	}
	b.host[index].Store(&memory{m})
}

// Barrier waits for every step of the card that has begun, and delays new ones until then.
func (b *Windows) Barrier() {
	b.steps.Lock()
	//lint:ignore SA2001 taking the lock is the wait
	b.steps.Unlock()
}

// Acquire implements card.Bus.
func (b *Windows) Acquire() { b.steps.RLock() }

// Release implements card.Bus.
func (b *Windows) Release() { b.steps.RUnlock() }

// Slice implements card.Bus.
func (b *Windows) Slice(addr uint64, n int, write bool) []byte {
	i, guestAddr, ok := b.Of(addr, uint64(n))
	if !ok {
		return nil
	}
	m := b.host[i].Load()
	if m == nil {
		return nil
	}
	m.Acquire()
	defer m.Release()
	return m.Slice(guestAddr, n, write)
}

// Memory returns a guest's memory, nil if there is none.
func (b *Windows) Memory(index int) card.Bus {
	if m := b.host[index].Load(); m != nil {
		return m.Bus
	}
	return nil
}

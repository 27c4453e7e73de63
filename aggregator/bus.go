package aggregator

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

// bus is the memory of all guests as the card sees it. Each guest has a window of the
// card's bus addresses, so that equal addresses of two guests are different for the card.
//
// A step of the card pins no guest's memory. It locks a guest's map only during the look-up
// in its window. The result stays valid until the step ends: Guest.Unmapped and
// Guest.DetachMemory first remove the memory from the map and then wait for the steps that
// began before. So a guest that changes its map never waits for the steps of others and
// never delays them.
type bus struct {
	shift uint // a bus address >> shift is the guest's number
	host  [MaxGuests]atomic.Pointer[memory]
	intr  chan struct{} // capacity 1: the card has an interrupt to report

	// steps is read-locked by each step. barrier takes the write side.
	steps sync.RWMutex
}

type memory struct{ card.Bus }

func (b *bus) init(guests int) {
	b.intr = make(chan struct{}, 1)
	b.shift = uint(cardBusBits - bits.Len(uint(guests-1)))
}

// window returns how many bytes of each guest's memory the card can reach.
func (b *bus) window() uint64 { return 1 << b.shift }

// at returns the card's address of a guest's address inside its window.
func (b *bus) at(index int, addr uint64) uint64 { return uint64(index)<<b.shift | addr }

// of returns the guest whose window holds n bytes at the card's address addr, and the
// guest's own address of them.
func (b *bus) of(addr, n uint64) (index uint64, guestAddr uint64, ok bool) {
	index, guestAddr = addr>>b.shift, addr&(b.window()-1)
	return index, guestAddr, index < MaxGuests && n <= b.window()-guestAddr
}

// attach puts a guest's memory into its window, or removes it (nil). Steps under way may
// still use what was there.
func (b *bus) attach(index int, m card.Bus) {
	if m == nil {
		b.host[index].Store(nil)
		return
	}
	b.host[index].Store(&memory{m})
}

// barrier waits for every step of the card that has begun, and delays new ones until then.
func (b *bus) barrier() {
	b.steps.Lock()
	//lint:ignore SA2001 taking the lock is the wait
	b.steps.Unlock()
}

// Acquire implements card.Bus.
func (b *bus) Acquire() { b.steps.RLock() }

// Release implements card.Bus.
func (b *bus) Release() { b.steps.RUnlock() }

// Slice implements card.Bus.
func (b *bus) Slice(addr uint64, n int, write bool) []byte {
	i, guestAddr, ok := b.of(addr, uint64(n))
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

// Interrupt implements card.Host. It is called under the card's lock, so it only
// wakes the goroutine that asks the card.
func (b *bus) Interrupt(l card.Line) {
	if !l.Level {
		return
	}
	select {
	case b.intr <- struct{}{}:
	default:
	}
}

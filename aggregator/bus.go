package aggregator

import (
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Each guest has a window of the card's bus addresses, so that equal addresses
// of two guests never meet: 32 windows of 32 GiB fill the card's 40 bits.
const (
	busShift   = 35
	BusWindow  = 1 << busShift        // the most guest memory that a card reaches, in bytes
	MaxGuests  = 1 << (40 - busShift) // and gf100.Owners
	windowMask = BusWindow - 1
)

// bus is the memory of all guests, as the card sees it.
//
// A step of the card pins nobody's memory: it takes the map of the one guest
// whose window it touches for the look-up alone. What it found stays good until
// the step ends because whoever takes memory away (Guest.Unmapped,
// Guest.DetachMemory) first makes the map forget it, and then waits for the
// steps that began before. So a guest whose map changes never waits for, and
// never delays, the steps of others.
type bus struct {
	host [MaxGuests]atomic.Pointer[memory]
	intr chan struct{} // of capacity 1: the card has something to say

	// steps is read-locked by each step. Its write side is the last resort of
	// barrier: it waits for every step under way, and holds up the next ones.
	steps sync.RWMutex
}

type memory struct{ card.Bus }

// attach puts a guest's memory into its window, or takes it out (nil). Steps that
// are under way may go on using what was there.
func (b *bus) attach(index int, m card.Bus) {
	if m == nil {
		b.host[index].Store(nil)
		return
	}
	b.host[index].Store(&memory{m})
}

// barrier waits for every step of the card that is under way.
func (b *bus) barrier() {
	b.steps.Lock()
	//lint:ignore SA2001 that the lock could be taken is all that is asked
	b.steps.Unlock()
}

// Acquire implements card.Bus.
func (b *bus) Acquire() { b.steps.RLock() }

// Release implements card.Bus.
func (b *bus) Release() { b.steps.RUnlock() }

// Slice implements card.Bus.
func (b *bus) Slice(addr uint64, n int, write bool) []byte {
	i := addr >> busShift
	if i >= MaxGuests || n < 0 || addr&windowMask+uint64(n) > BusWindow {
		return nil
	}
	m := b.host[i].Load()
	if m == nil {
		return nil
	}
	m.Acquire()
	defer m.Release()
	return m.Slice(addr&windowMask, n, write)
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

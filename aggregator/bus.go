package aggregator

import (
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Each guest has a window of the card's bus addresses, so that equal addresses
// of two guests never meet: 32 windows of 32 GiB fill the card's 40 bits.
const (
	busShift   = 35
	BusWindow  = 1 << busShift // the most guest memory that a card reaches, in bytes
	MaxGuests  = 1 << (40 - busShift)
	windowMask = BusWindow - 1
)

// bus is the memory of all guests, as the card sees it.
type bus struct {
	mu   sync.RWMutex // guards host; the read side is a step of the card
	host [MaxGuests]card.Bus
	intr chan struct{} // of capacity 1: the card has something to say
}

// attach puts a guest's memory into its window, or takes it out (nil). When it
// returns, the card no longer uses what was there before.
func (b *bus) attach(index int, m card.Bus) {
	b.mu.Lock()
	b.host[index] = m
	b.mu.Unlock()
}

// Acquire implements card.Bus. Every guest's map is pinned: a step of the card
// belongs to one of them, but the bus does not know to which.
func (b *bus) Acquire() {
	b.mu.RLock()
	for _, h := range b.host {
		if h != nil {
			h.Acquire()
		}
	}
}

// Release implements card.Bus.
func (b *bus) Release() {
	for _, h := range b.host {
		if h != nil {
			h.Release()
		}
	}
	b.mu.RUnlock()
}

// Slice implements card.Bus.
func (b *bus) Slice(addr uint64, n int, write bool) []byte {
	i := addr >> busShift
	if i >= MaxGuests || b.host[i] == nil || n < 0 || addr&windowMask+uint64(n) > BusWindow {
		return nil
	}
	return b.host[i].Slice(addr&windowMask, n, write)
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

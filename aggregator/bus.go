package aggregator

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// MaxGuests is how many guests a card tells apart: what the owner's field in RAMFC
// has room for. Options.Guests is the limit, and may be less.
const MaxGuests = gf100.Owners

// cardBusBits is how many bits a bus address has in the chip's page-table entries.
const cardBusBits = 40

// bus is the memory of all guests, as the card sees it. Each guest has a window of
// the card's bus addresses, so that equal addresses of two guests never meet; the
// windows fill the card's addresses.
//
// A step of the card pins nobody's memory: it takes the map of the one guest
// whose window it touches for the look-up alone. What it found stays good until
// the step ends because whoever takes memory away (Guest.Unmapped,
// Guest.DetachMemory) first makes the map forget it, and then waits for the
// steps that began before. So a guest whose map changes never waits for, and
// never delays, the steps of others.
type bus struct {
	shift uint // of a bus address: the guest's number
	host  [MaxGuests]atomic.Pointer[memory]
	intr  chan struct{} // of capacity 1: the card has something to say

	// steps is read-locked by each step. Its write side is the last resort of
	// barrier: it waits for every step under way, and holds up the next ones.
	steps sync.RWMutex
}

type memory struct{ card.Bus }

func (b *bus) init(guests int) {
	b.intr = make(chan struct{}, 1)
	b.shift = uint(cardBusBits - bits.Len(uint(guests-1)))
}

// window is how many bytes of a guest's memory the card reaches.
func (b *bus) window() uint64 { return 1 << b.shift }

// at is where address addr of a guest, which is inside its window, is for the card.
func (b *bus) at(index int, addr uint64) uint64 { return uint64(index)<<b.shift | addr }

// of says whose n bytes at addr of the card are, and where he has them.
func (b *bus) of(addr, n uint64) (index uint64, own uint64, ok bool) {
	index, own = addr>>b.shift, addr&(b.window()-1)
	return index, own, index < MaxGuests && n <= b.window()-own
}

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
	i, own, ok := b.of(addr, uint64(n))
	if !ok {
		return nil
	}
	m := b.host[i].Load()
	if m == nil {
		return nil
	}
	m.Acquire()
	defer m.Release()
	return m.Slice(own, n, write)
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

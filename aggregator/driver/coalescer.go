package driver

import (
	"sync"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// coalescer runs one kind of card operation for all guests at once: each caller that asks
// before an operation begins takes part in it. With any number of guests asking, each waits
// for the operation under way and the next one, never for a queue of neighbours.
//
// Its lock is held for a moment only, never while the card is asked.
type coalescer struct {
	mu   sync.Mutex
	over sync.Cond
	busy bool
	next *batch // of the operation that has not begun
}

// batch is one operation.
type batch struct {
	done, ok bool
	ids      [gf100.Channels]bool // for a preempt
	dirs     []uint64             // for an invalidate: directories in the card's memory
	allDirs  bool                 // or all of them
}

func (c *coalescer) init() { c.over.L = &c.mu }

// do takes part in the next operation and returns its result. join adds to the batch; run
// executes it for all callers, on the goroutine of one of them.
func (c *coalescer) do(join func(*batch), run func(*batch) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = new(batch)
	}
	b := c.next
	if join != nil {
		join(b)
	}
	for c.busy && !b.done {
		c.over.Wait()
	}
	if b.done {
		return b.ok
	}
	c.busy, c.next = true, nil
	c.mu.Unlock()
	ok := run(b)
	c.mu.Lock()
	b.done, b.ok, c.busy = true, ok, false
	c.over.Broadcast()
	return ok
}

// try runs an operation of its own if none is under way or requested, and returns run's
// result. It does not wait, and run must not.
func (c *coalescer) try(run func() bool) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.next != nil {
		return false
	}
	c.busy = true
	c.mu.Unlock()
	ok = run()
	c.mu.Lock()
	c.busy = false
	c.over.Broadcast()
	return ok
}

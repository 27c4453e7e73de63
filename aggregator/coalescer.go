package aggregator

import "sync"

// turn is an operation of the card that serves everybody at once: whoever asks
// before it begins has part in it. With any number of guests asking, each waits
// for the one under way and the next, never for a queue of its neighbours.
//
// Its lock is held for a moment only, never while the card is asked.
type coalescer struct {
	mu   sync.Mutex
	over sync.Cond
	busy bool
	next *batch // of the operation that has not begun
}

// ticket is one operation.
type batch struct {
	done, ok bool
	ids      channelSet // of a preempt: the card's channels
	dirs     []uint64   // of an invalidate: directories in the card's memory
	allDirs  bool       // or all of them
}

func (t *coalescer) init() { t.over.L = &t.mu }

// do has part in the next operation and returns its result. join adds to it; run
// does it, for everybody, on the goroutine of one of them.
func (t *coalescer) do(join func(*batch), run func(*batch) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = new(batch)
	}
	k := t.next
	if join != nil {
		join(k)
	}
	for t.busy && !k.done {
		t.over.Wait()
	}
	if k.done {
		return k.ok
	}
	t.busy, t.next = true, nil
	t.mu.Unlock()
	ok := run(k)
	t.mu.Lock()
	k.done, k.ok, t.busy = true, ok, false
	t.over.Broadcast()
	return ok
}

// try has an operation of its own if none is under way or asked for, and returns what
// run does. It does not wait, and run must not.
func (t *coalescer) try(run func() bool) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy || t.next != nil {
		return false
	}
	t.busy = true
	t.mu.Unlock()
	ok = run()
	t.mu.Lock()
	t.busy = false
	t.over.Broadcast()
	return ok
}

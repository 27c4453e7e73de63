package vfiouser

import (
	"errors"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// holes bounds the pages that accesses of one server's device allocate in files of its clients. The
// kernel charges such a page to the control group of this process, not to the client's. A page that
// the client has populated costs one load more before an access. All methods may be called by any
// goroutine.
type holes struct {
	faults *userfaults // nil: nothing is bounded
	most   uint64
	taken  atomic.Uint64 // never given back: whoever has a file's descriptor keeps the pages, also when its client has ended
	refuse func()
}

// allocation is the most that is allocated at once: 256 KiB.
const allocation = 256 << 10

// watch makes a new mapping subject to the bound, and reports whether its accesses must be announced
// by populate. A descriptor without the right to write cannot be watched: all of its mapping counts.
func (h *holes) watch(mem []byte) (bool, error) {
	if h == nil || h.faults == nil {
		return false, nil
	}
	watched, err := h.faults.watch(mem)
	if errors.Is(err, unix.EPERM) {
		if n, got := uint64(len(mem)), h.take(uint64(len(mem))); got < n {
			h.giveBack(got)
			return false, refusal(DMAAlloc)
		}
		return false, nil
	}
	return watched, err
}

// take takes up to n bytes of what may be allocated.
func (h *holes) take(n uint64) uint64 {
	for {
		taken := h.taken.Load()
		n = min(n, h.most-min(taken, h.most))
		if h.taken.CompareAndSwap(taken, taken+n) {
			return n
		}
	}
}

func (h *holes) giveBack(n uint64) { h.taken.Add(-n) }

// populate makes the n bytes of mem at off present: it allocates holes among their pages. It reports
// false if it may not, or if the file is shorter. A client that makes holes meanwhile makes the
// access fault.
//
// Preconditions: a fault panics (debug.SetPanicOnFault).
func (h *holes) populate(mem []byte, off, n uint64) bool {
	const tries = 3 // of a page where the client makes holes
	for end, left := off+n, tries; ; left-- {
		at, none := firstHole(mem, off, end)
		if none {
			return true
		}
		if at != off {
			off, left = at, tries
		}
		if left == 0 || !h.allocate(mem[at&^(pageSize-1):(end+pageSize-1)&^(pageSize-1)]) {
			return false
		}
	}
}

// firstHole returns the first byte from off to end whose page faults; none if there is no such byte.
func firstHole(mem []byte, off, end uint64) (at uint64, none bool) {
	defer func() {
		if p := recover(); p != nil && !isFault(p) {
			panic(p)
		}
	}()
	var sum byte
	for at = off; at < end; at = at&^(pageSize-1) + pageSize {
		sum |= mem[at]
	}
	runtime.KeepAlive(sum)
	return at, true
}

// allocate fills the hole at the start of pages, as far as it reaches or may.
func (h *holes) allocate(pages []byte) bool {
	n := h.take(min(uint64(len(pages)), allocation)) &^ (pageSize - 1)
	if n == 0 {
		h.refuse()
		return false
	}
	filled, errno := h.faults.allocate(pages[:n])
	h.giveBack(n - filled)
	return errno == 0 || errno == unix.EEXIST
}

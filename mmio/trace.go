package mmio

import (
	"fmt"
	"sync"
)

// Record is one traced access.
type Record struct {
	Seq    uint64 `json:"seq"`  // counts all traced accesses, also those the ring has dropped
	Time   int64  `json:"t_ns"` // monotonic nanoseconds since the process started
	Offset uint32 `json:"offset"`
	Value  uint32 `json:"value"` // the first four bytes
	Size   uint8  `json:"size"`  // bytes
	Write  bool   `json:"write"`
}

// Range selects offsets First to Last, both included.
type Range struct{ First, Last uint32 }

// Trace is a ring of the latest accesses within the selected ranges. One trace
// may be attached to a Space at a time, and at any moment.
type Trace struct {
	ranges []Range

	mu   sync.Mutex // guards ring and next; taken last
	ring []Record
	next uint64
}

// NewTrace makes a trace that keeps the latest size records of the ranges; no
// range means every offset.
func NewTrace(size int, ranges ...Range) (*Trace, error) {
	if size < 1 {
		return nil, fmt.Errorf("mmio: a trace of %d records; at least 1 is needed", size)
	}
	for _, r := range ranges {
		if r.Last < r.First {
			return nil, fmt.Errorf("mmio: trace range %#x-%#x is empty", r.First, r.Last)
		}
	}
	return &Trace{ranges: ranges, ring: make([]Record, size)}, nil
}

// SetTrace attaches t, or nothing if t is nil. It may be called while a guest
// runs.
func (s *Space) SetTrace(t *Trace) { s.trace.Store(t) }

// BlockRanges returns the offsets that the named block declares, as ranges of
// neighbouring rows, for NewTrace.
func (s *Space) BlockRanges(block string) ([]Range, error) {
	var out []Range
	for _, r := range s.rows[1:] {
		if s.blocks[r.block] != block {
			continue
		}
		if r.window != nil {
			out = append(out, Range{r.windowBase, r.windowBase + r.windowSize - 1})
			continue
		}
		for i := range r.decl.instances() {
			off := r.decl.offset(i)
			out = append(out, Range{off, off | 3})
		}
	}
	if out == nil {
		return nil, fmt.Errorf("mmio: no block named %q; there are %q", block, s.blocks)
	}
	return out, nil
}

func (s *Space) record(off uint32, n int, v uint32, write bool) {
	if t := s.trace.Load(); t != nil {
		t.add(off, n, v, write)
	}
}

func (t *Trace) add(off uint32, n int, v uint32, write bool) {
	if !t.wants(off) {
		return
	}
	if n < 4 {
		v &= 1<<(n*8) - 1
	}
	t.mu.Lock()
	t.ring[t.next%uint64(len(t.ring))] = Record{
		Seq: t.next, Time: now(), Offset: off, Value: v, Size: uint8(min(n, 255)), Write: write,
	}
	t.next++
	t.mu.Unlock()
}

func (t *Trace) wants(off uint32) bool {
	for _, r := range t.ranges {
		if r.First <= off && off <= r.Last {
			return true
		}
	}
	return len(t.ranges) == 0
}

// Records returns the ring's content, oldest first, and how many older records
// it has dropped.
func (t *Trace) Records() (records []Record, dropped uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := uint64(len(t.ring))
	if t.next > size {
		dropped = t.next - size
	}
	for seq := dropped; seq < t.next; seq++ {
		records = append(records, t.ring[seq%size])
	}
	return records, dropped
}

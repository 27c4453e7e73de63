package mmio

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// Record is one traced access, or the part of one that fell to one dword or one
// aperture.
type Record struct {
	Seq    uint64 `json:"seq"`  // counts all traced accesses, also those the ring has dropped
	Time   int64  `json:"t_ns"` // monotonic nanoseconds since the process started
	Value  uint64 `json:"value"`
	Offset uint32 `json:"offset"`
	Size   uint16 `json:"size"` // bytes, 65535 for more; Value holds the first eight
	Write  bool   `json:"write"`
}

// Range selects offsets First to Last, both included.
type Range struct{ First, Last uint32 }

// Trace is a ring of the latest accesses within the selected ranges, kept as
// encoded records. One trace may be attached to a Space at a time; attaching,
// selecting and reading may be done at any moment.
type Trace struct {
	ranges atomic.Pointer[[]Range] // sorted, apart from each other

	mu   sync.Mutex // guards ring and next; taken last
	ring []byte
	next uint64
}

// maxTraceRecords bounds the ring to 1 GiB.
const maxTraceRecords = 1 << 30 / RecordSize

// NewTrace makes a trace that keeps the latest size records of the ranges; no
// range means every offset.
func NewTrace(size int, ranges ...Range) (*Trace, error) {
	if size < 1 || size > maxTraceRecords {
		return nil, fmt.Errorf("mmio: a trace of %d records; 1 to %d are possible", size, maxTraceRecords)
	}
	t := &Trace{ring: make([]byte, size*RecordSize)}
	if err := t.Select(ranges...); err != nil {
		return nil, err
	}
	return t, nil
}

// Select changes what is traced from now on; no range means every offset. What
// the ring holds stays.
func (t *Trace) Select(ranges ...Range) error {
	for _, r := range ranges {
		if r.Last < r.First {
			return fmt.Errorf("mmio: trace range %#x-%#x is empty", r.First, r.Last)
		}
	}
	merged := mergeRanges(ranges)
	t.ranges.Store(&merged)
	return nil
}

// mergeRanges sorts ranges and joins those that touch.
func mergeRanges(ranges []Range) []Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	var out []Range
	for _, r := range sorted {
		if n := len(out); n > 0 && uint64(r.First) <= uint64(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// SetTrace attaches t, or nothing if t is nil. It may be called while a guest
// runs.
func (s *Space) SetTrace(t *Trace) { s.trace.Store(t) }

// BlockRanges returns the offsets that the named blocks declare, for NewTrace
// and Select. An aperture is a block of its own name. Holes belong to no block:
// to see those among a block's registers, select from its first offset to its
// last.
func (s *Space) BlockRanges(blocks ...string) ([]Range, error) {
	var out []Range
	for _, block := range blocks {
		if !slices.Contains(s.blocks, block) {
			return nil, fmt.Errorf("mmio: no block named %q; there are %q", block, s.blocks)
		}
		for _, r := range s.rows[1:] {
			if s.blocks[r.block] == block {
				out = append(out, r.ranges()...)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("mmio: no rows in the blocks %q", blocks)
	}
	return mergeRanges(out), nil
}

// ranges returns the bytes that the row's instances cover.
func (r *row) ranges() []Range {
	if r.window != nil {
		return []Range{{r.windowBase, r.windowBase + r.windowSize - 1}}
	}
	out := make([]Range, r.decl.instances())
	for i := range out {
		off := r.decl.offset(i)
		out[i] = Range{off, off + r.width() - 1}
	}
	return out
}

// add records n bytes at off; v holds the first eight, and zero above them.
func (t *Trace) add(off uint32, n int, v uint64, write bool) {
	if !t.wants(off, n) {
		return
	}
	r := Record{Time: now(), Offset: off, Value: v, Size: uint16(min(n, 0xffff)), Write: write}
	t.mu.Lock()
	r.Seq = t.next
	r.put(t.slot(t.next))
	t.next++
	t.mu.Unlock()
}

// slot returns where record seq is kept. Preconditions: t.mu is held.
func (t *Trace) slot(seq uint64) []byte {
	i := seq % uint64(len(t.ring)/RecordSize) * RecordSize
	return t.ring[i : i+RecordSize]
}

// wants reports whether n bytes at off touch a selected range.
func (t *Trace) wants(off uint32, n int) bool {
	ranges := *t.ranges.Load()
	if len(ranges) == 0 {
		return true
	}
	lo, hi := 0, len(ranges) // the first range that ends at off or above
	for lo < hi {
		if mid := (lo + hi) / 2; ranges[mid].Last < off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(ranges) && uint64(ranges[lo].First) < uint64(off)+uint64(n)
}

// copyAtOnce is how many records a reader copies while an access may have to
// wait for it: a few hundred nanoseconds.
const copyAtOnce = 128

// each calls f with encoded records, oldest first, up to the newest at the time of the
// call. Records that are overwritten in the meantime are left out.
func (t *Trace) each(f func(records []byte) error) error {
	buf := make([]byte, 0, copyAtOnce*RecordSize)
	size := uint64(len(t.ring) / RecordSize)
	t.mu.Lock()
	end := t.next
	t.mu.Unlock()
	for seq := uint64(0); seq < end; {
		buf = buf[:0]
		t.mu.Lock()
		if t.next > size {
			seq = max(seq, t.next-size)
		}
		for ; seq < end && len(buf) < cap(buf); seq++ {
			buf = append(buf, t.slot(seq)...)
		}
		t.mu.Unlock()
		if len(buf) == 0 {
			break
		}
		if err := f(buf); err != nil {
			return err
		}
	}
	return nil
}

// Records returns the ring's content, oldest first, and how many older records
// it has dropped.
func (t *Trace) Records() (records []Record, dropped uint64) {
	_ = t.each(func(b []byte) error { // the function below returns no error
		for ; len(b) > 0; b = b[RecordSize:] {
			records = append(records, getRecord(b))
		}
		return nil
	})
	if len(records) > 0 {
		dropped = records[0].Seq
	}
	return records, dropped
}

// WriteTo writes the ring's content as a trace file, oldest record first. It
// may be called while a guest runs.
func (t *Trace) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(fileHeader())
	total := int64(n)
	if err != nil {
		return total, err
	}
	err = t.each(func(b []byte) error {
		n, err := w.Write(b)
		total += int64(n)
		return err
	})
	return total, err
}

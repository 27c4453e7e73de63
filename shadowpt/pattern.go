package shadowpt

import (
	"fmt"
	"sync/atomic"
)

// Rule says which pages of tables are written densely. Between two flush points
// (a flush point is where shadows must be right: work is submitted, or an
// invalidate comes while work is under way) a page that gets more than Burst
// trapped writes becomes dense. A dense page that is written at most Burst times
// before each of Calm flush points in a row is no longer dense; flush points
// before which it is not written at all say nothing.
//
// A write to a page that is not dense is applied at once, while the guest goes
// on: its submission then finds nothing to do. Writes to a dense page wait for
// the flush point, where one look serves all of them. Drivers write entries in
// single bytes, eight to an entry.
type Rule struct{ Burst, Calm int }

// DefaultRule takes up to eight entries, written in bytes, for single ones.
var DefaultRule = Rule{Burst: 64, Calm: 4}

// Bounds of a Rule.
const (
	MaxBurst = 1<<16 - 2
	MaxCalm  = 1<<8 - 1
)

func (r Rule) check() error {
	switch {
	case r.Burst < 0 || r.Burst > MaxBurst:
		return fmt.Errorf("%d writes: must be 0 to %d", r.Burst, MaxBurst)
	case r.Calm < 1 || r.Calm > MaxCalm:
		return fmt.Errorf("%d flush points: must be 1 to %d", r.Calm, MaxCalm)
	}
	return nil
}

// Pattern is how the pages of a guest's VRAM have been written. Wrote may be
// called by any goroutine, Flushed by one at a time.
type Pattern struct {
	rule    Rule
	touched pageSet // since the last flush point
	pages   []atomic.Uint32
	list    []uint64 // scratch
}

// A page's state: writes since the last flush point, calm flush points, and
// whether it is dense.
const (
	patternWrites = 1<<16 - 1
	patternCalm   = 1 << 16
	patternDense  = 1 << 24
)

// NewPattern makes a pattern for vram bytes of VRAM that nobody has written yet.
func NewPattern(vram uint64, r Rule) *Pattern {
	n := (vram + SmallPage - 1) / SmallPage
	return &Pattern{rule: r, touched: newPageSet(n), pages: make([]atomic.Uint32, n)}
}

// Wrote counts a write at an address and reports whether it is to be applied at
// once.
func (p *Pattern) Wrote(addr uint64) (atOnce bool) {
	page := addr / SmallPage
	if page >= uint64(len(p.pages)) {
		return false
	}
	for {
		old := p.pages[page].Load()
		now := old
		if old&patternWrites < patternWrites {
			now++
		}
		if int(now&patternWrites) > p.rule.Burst {
			now = now&patternWrites | patternDense
		}
		if p.pages[page].CompareAndSwap(old, now) {
			if old&patternWrites == 0 {
				p.touched.add(page)
			}
			return now&patternDense == 0
		}
	}
}

// Flushed tells that a flush point has been passed.
func (p *Pattern) Flushed() {
	p.list = p.touched.take(p.list[:0])
	for _, page := range p.list {
		for {
			old := p.pages[page].Load()
			if p.pages[page].CompareAndSwap(old, p.after(old)) {
				break
			}
		}
	}
}

// after is a page's state when a flush point has been passed.
func (p *Pattern) after(v uint32) uint32 {
	if v&patternDense == 0 || int(v&patternWrites) > p.rule.Burst {
		return v & patternDense
	}
	v = v&^patternWrites + patternCalm
	if int(v&^patternDense/patternCalm) >= p.rule.Calm {
		return 0
	}
	return v
}

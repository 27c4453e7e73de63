package mmio

import (
	"cmp"
	"slices"
	"time"
)

// Report sums up a guest's accesses to a Space so far.
type Report struct {
	Reads  uint64        `json:"reads" help:"Reads of declared registers."`
	Writes uint64        `json:"writes" help:"Writes of declared registers."`
	Time   time.Duration `json:"time_ns" help:"Time spent on these accesses, estimated from a sample."`
	Blocks []BlockCount  `json:"blocks,omitempty" metric:"block"`
	Rows   []RowCount    `json:"rows,omitempty"`  // most accessed first, as the blocks
	Stubs  []RowCount    `json:"stubs,omitempty"` // the rows that are stubs, once more
	Missed Missed        `json:"missed" metric:""`
}

// BlockCount sums the rows of a block.
type BlockCount struct {
	Name   string        `json:"name" metric:"block,label"`
	Rows   int           `json:"rows" help:"Gauge. Registers of the block that were accessed."`
	Reads  uint64        `json:"reads" help:"Reads."`
	Writes uint64        `json:"writes" help:"Writes."`
	Time   time.Duration `json:"time_ns" help:"Time spent on these accesses, estimated from a sample."`
}

// Report sums up the counters. It may be called while a guest runs.
func (s *Space) Report() Report {
	r := s.Summary()
	r.Missed = s.Missed()
	return r
}

// Summary is the Report without the undeclared offsets: to name thousands of them takes milliseconds, and
// the guest decides how many there are.
func (s *Space) Summary() Report {
	r := Report{Rows: s.Counts(), Missed: s.missedCounts()}
	at := make(map[string]int)
	for _, c := range r.Rows {
		i, ok := at[c.Block]
		if !ok {
			i = len(r.Blocks)
			at[c.Block] = i
			r.Blocks = append(r.Blocks, BlockCount{Name: c.Block})
		}
		b := &r.Blocks[i]
		b.Rows++
		b.Reads += c.Reads
		b.Writes += c.Writes
		b.Time += c.Time
		r.Reads += c.Reads
		r.Writes += c.Writes
		r.Time += c.Time
	}
	slices.SortStableFunc(r.Rows, func(a, b RowCount) int { return cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes) })
	slices.SortStableFunc(r.Blocks, func(a, b BlockCount) int { return cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes) })
	for _, c := range r.Rows {
		if c.Stub {
			r.Stubs = append(r.Stubs, c)
		}
	}
	return r
}

package mmio

import (
	"sync/atomic"
	"time"
)

// SampleEvery is how many accesses of a row one timing represents: two clock readings cost
// more than a plain register access does. The first SampleEvery reads and writes of a row
// are all timed, so that the time of a rarely used register, or of a slow first access, is
// exact and not multiplied.
const SampleEvery = 16

// rowStats are atomic so that a report may be taken while a guest runs; only
// the owner of the Space writes them.
type rowStats struct {
	reads, writes dirStats
	readOnly      atomic.Uint64
}

// dirStats count one direction. Reads and writes of a register cost differently, so they
// are sampled separately.
type dirStats struct {
	n     atomic.Uint64
	first atomic.Int64 // nanoseconds of the first SampleEvery accesses
	later atomic.Int64 // nanoseconds of the sampled ones after those
}

// sampled reports whether the n-th access, counted from 1, is timed.
func sampled(n uint64) bool { return n <= SampleEvery || n%SampleEvery == 1 }

// begin counts an access and returns its number, and the time of its start if it is timed.
func (s *Space) begin(d *dirStats) (n uint64, start int64) {
	n = d.n.Add(1)
	if sampled(n) {
		start = s.clock()
	}
	return n, start
}

// end adds the time of the access that begin counted as the n-th.
func (s *Space) end(d *dirStats, n uint64, start int64) {
	if !sampled(n) {
		return
	}
	nanos := max(s.clock()-start-s.clockCost, 0)
	if n <= SampleEvery {
		d.first.Add(nanos)
	} else {
		d.later.Add(nanos)
	}
}

// time estimates the nanoseconds of n accesses.
func (d *dirStats) time(n uint64) time.Duration {
	t := float64(d.first.Load())
	if n > SampleEvery {
		rest := n - SampleEvery
		samples := (rest + SampleEvery - 1) / SampleEvery
		t += float64(d.later.Load()) / float64(samples) * float64(rest)
	}
	return time.Duration(t)
}

var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// clockCost returns how much of a measured time is the clock's own: the least of
// a few empty measurements.
func clockCost(clock func() int64) int64 {
	least := clock()
	least = clock() - least
	for range 16 {
		start := clock()
		least = min(least, clock()-start)
	}
	return least
}

// RowCount counts the accesses of one row since the space was made.
type RowCount struct {
	Block    string        `json:"block"`
	Name     string        `json:"name"`
	Offset   uint32        `json:"offset" help:"Address in BAR0."`
	Reads    uint64        `json:"reads" help:"Reads."`
	Writes   uint64        `json:"writes" help:"Writes."`
	ReadOnly uint64        `json:"read_only,omitempty" help:"Writes that touched no writable bit."`
	Time     time.Duration `json:"time_ns" help:"Time spent on these accesses without the cost of the clock, estimated from a sample."`
	Stub     bool          `json:"stub,omitempty"`
}

// Counts returns the rows that were touched, in the order of their declaration.
// It may be called while a guest runs.
func (s *Space) Counts() []RowCount {
	var out []RowCount
	for _, r := range s.rows[1:] {
		c := RowCount{
			Block: s.blocks[r.block], Name: r.decl.Name, Offset: r.decl.Offset, Stub: r.decl.Stub,
			Reads: r.stats.reads.n.Load(), Writes: r.stats.writes.n.Load(), ReadOnly: r.stats.readOnly.Load(),
		}
		if c.Reads+c.Writes == 0 {
			continue
		}
		c.Time = r.stats.reads.time(c.Reads) + r.stats.writes.time(c.Writes)
		out = append(out, c)
	}
	return out
}

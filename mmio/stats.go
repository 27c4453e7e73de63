package mmio

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// SampleEvery is how many accesses of a row one timing stands for: two clock
// readings cost more than a plain register access does.
const SampleEvery = 16

// rowStats are atomic so that a report may be taken while a guest runs.
type rowStats struct {
	reads, writes  atomic.Uint64
	nanos, samples atomic.Int64
}

// begin counts an access; it returns the time if this one is sampled, else 0.
func begin(n *atomic.Uint64) int64 {
	if n.Add(1)%SampleEvery != 1 {
		return 0
	}
	return now()
}

func (st *rowStats) end(start int64) {
	if start != 0 {
		st.nanos.Add(now() - start)
		st.samples.Add(1)
	}
}

// RowCount is what one row has seen since the space was made.
type RowCount struct {
	Block  string `json:"block"`
	Name   string `json:"name"`
	Offset uint32 `json:"offset"`
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	// Time is an estimate: the mean of the sampled accesses times all of them.
	Time time.Duration `json:"time_ns"`
	Stub bool          `json:"stub,omitempty"`
}

// Hole is an undeclared offset that a guest touched.
type Hole struct {
	Offset uint32 `json:"offset"`
	Near   string `json:"near"` // nearest declared name below, and the distance
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
}

// Missed counts what the declared rows did not cover.
type Missed struct {
	HoleReads  uint64 `json:"hole_reads"`
	HoleWrites uint64 `json:"hole_writes"`
	ReadOnly   uint64 `json:"read_only"`       // writes that touched no writable bit
	Stubs      uint64 `json:"stubs"`           // accesses to rows marked Stub
	OddSize    uint64 `json:"odd_size"`        // accesses of other sizes than 1, 2, 4, 8
	Outside    uint64 `json:"outside"`         // accesses that left the space
	Unlisted   uint64 `json:"unlisted"`        // hole accesses beyond the list's capacity
	Holes      []Hole `json:"holes,omitempty"` // most touched first
}

// maxHoles bounds the list of undeclared offsets: a hostile guest must not make
// it grow.
const maxHoles = 4096

type missedStats struct {
	holeReads, holeWrites, readOnly, stubs, oddSize, outside, unlisted atomic.Uint64

	mu    sync.Mutex // guards holes; taken last
	holes map[uint32]*[2]uint64
}

func (m *missedStats) init() { m.holes = make(map[uint32]*[2]uint64) }

func (m *missedStats) hole(off uint32, write bool) {
	dir := 0
	if write {
		dir = 1
		m.holeWrites.Add(1)
	} else {
		m.holeReads.Add(1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.holes[off]
	if c == nil {
		if len(m.holes) == maxHoles {
			m.unlisted.Add(1)
			return
		}
		c = new([2]uint64)
		m.holes[off] = c
	}
	c[dir]++
}

// Counts returns the rows that were touched, in the order of their declaration.
func (s *Space) Counts() []RowCount {
	var out []RowCount
	for _, r := range s.rows[1:] {
		c := RowCount{
			Block: s.blocks[r.block], Name: r.decl.Name, Offset: r.decl.Offset, Stub: r.decl.Stub,
			Reads: r.stats.reads.Load(), Writes: r.stats.writes.Load(),
		}
		if c.Reads+c.Writes == 0 {
			continue
		}
		if n := r.stats.samples.Load(); n > 0 {
			mean := float64(r.stats.nanos.Load()) / float64(n)
			c.Time = time.Duration(mean * float64(c.Reads+c.Writes))
		}
		out = append(out, c)
	}
	return out
}

// Missed returns what fell outside the declared rows.
func (s *Space) Missed() Missed {
	m := &s.missed
	out := Missed{
		HoleReads: m.holeReads.Load(), HoleWrites: m.holeWrites.Load(), ReadOnly: m.readOnly.Load(),
		Stubs: m.stubs.Load(), OddSize: m.oddSize.Load(), Outside: m.outside.Load(), Unlisted: m.unlisted.Load(),
	}
	m.mu.Lock()
	for off, c := range m.holes {
		out.Holes = append(out.Holes, Hole{Offset: off, Reads: c[0], Writes: c[1]})
	}
	m.mu.Unlock()
	slices.SortFunc(out.Holes, func(a, b Hole) int {
		return cmp.Or(cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes), cmp.Compare(a.Offset, b.Offset))
	})
	for i := range out.Holes {
		out.Holes[i].Near = s.NameOf(out.Holes[i].Offset)
	}
	return out
}

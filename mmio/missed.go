package mmio

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Hole is an undeclared offset that a guest touched: a dword, or the first
// undeclared byte of a dword that narrower registers fill in part.
type Hole struct {
	Offset uint32 `json:"offset" help:"Address in BAR0."`
	Near   string `json:"near"` // nearest declared name and the distance
	Reads  uint64 `json:"reads" help:"Reads of this offset."`
	Writes uint64 `json:"writes" help:"Writes of this offset."`
}

// Missed counts accesses outside of the declared rows.
type Missed struct {
	HoleReads  uint64 `json:"undeclared_reads" help:"Reads of undeclared offsets; a driver that does not work may need a register there."`
	HoleWrites uint64 `json:"undeclared_writes" help:"Writes of undeclared offsets."`
	ReadOnly   uint64 `json:"read_only" help:"Writes that touched no writable bit."`
	Stubs      uint64 `json:"stubs" help:"Accesses to registers that only store, where hardware would act."`
	OddSize    uint64 `json:"odd_size" help:"Accesses of other sizes than 1, 2, 4 or 8 bytes."`
	Outside    uint64 `json:"outside" help:"Accesses that left the region."`
	Unlisted   uint64 `json:"unlisted" help:"Accesses to undeclared offsets beyond the list's capacity."`
	Holes      []Hole `json:"undeclared,omitempty"` // most touched first
}

// maxHoles bounds the list of undeclared offsets: a hostile guest must not make
// it grow. It bounds a report only, so it is no option: further offsets are
// counted as Unlisted and stored as usual.
const (
	maxHoles   = 4096
	holeBits   = 13
	holeSlots  = 1 << holeBits // twice maxHoles, so that a search ends soon
	holeSpread = 0x9e3779b1    // 2^32 / golden ratio: neighbours go far apart
)

// missedStats are written by the owner of the Space and read by any goroutine, hence
// atomic. The holes are an open-addressed table. It needs no lock, which a report could
// hold while a guest waits, and no allocation.
type missedStats struct {
	holeReads, holeWrites, readOnly, stubs, oddSize, outside, unlisted atomic.Uint64

	listed int // owner's
	holes  [holeSlots]holeSlot
}

type holeSlot struct {
	key           atomic.Uint32 // offset + 1; 0 is free
	reads, writes atomic.Uint64
}

func (h *holeSlot) add(write bool) {
	if write {
		h.writes.Add(1)
	} else {
		h.reads.Add(1)
	}
}

func (m *missedStats) hole(off uint32, write bool) {
	if write {
		m.holeWrites.Add(1)
	} else {
		m.holeReads.Add(1)
	}
	h := m.slot(off)
	switch {
	case h.key.Load() != 0:
		h.add(write)
	case m.listed == maxHoles:
		m.unlisted.Add(1)
	default:
		h.add(write) // before the key, which shows the slot to readers
		h.key.Store(off + 1)
		m.listed++
	}
}

func (m *missedStats) slot(off uint32) *holeSlot {
	for i := off / 4 * holeSpread >> (32 - holeBits); ; i = (i + 1) % holeSlots {
		if k := m.holes[i].key.Load(); k == 0 || k == off+1 {
			return &m.holes[i]
		}
	}
}

// missedCounts is Missed without the list of offsets.
func (s *Space) missedCounts() Missed {
	m := &s.missed
	return Missed{
		HoleReads: m.holeReads.Load(), HoleWrites: m.holeWrites.Load(), ReadOnly: m.readOnly.Load(),
		Stubs: m.stubs.Load(), OddSize: m.oddSize.Load(), Outside: m.outside.Load(), Unlisted: m.unlisted.Load(),
	}
}

// Missed returns what fell outside the declared rows. It may be called while a
// guest runs.
func (s *Space) Missed() Missed {
	m, out := &s.missed, s.missedCounts()
	for i := range m.holes {
		h := &m.holes[i]
		if k := h.key.Load(); k != 0 {
			out.Holes = append(out.Holes, Hole{Offset: k - 1, Reads: h.reads.Load(), Writes: h.writes.Load()})
		}
	}
	slices.SortFunc(out.Holes, func(a, b Hole) int {
		return cmp.Or(cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes), cmp.Compare(a.Offset, b.Offset))
	})
	for i := range out.Holes {
		out.Holes[i].Near = s.NameOf(out.Holes[i].Offset)
	}
	return out
}

package shadowpt_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// memory is a sparse one, byte by byte: VRAM and system memory apart.
type memory struct {
	bytes map[uint64]byte
	holes map[uint64]bool // pages that nothing answers for
	reads int
}

const systemBit = 1 << 63

func location(t shadowpt.Target, addr uint64) uint64 {
	if t.System() {
		return addr | systemBit
	}
	return addr
}

func (m *memory) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	m.reads++
	if t == shadowpt.Peer || m.holes[location(t, addr)>>12] {
		return 0, false
	}
	var q uint64
	for i := range uint64(8) {
		q |= uint64(m.bytes[location(t, addr+i)]) << (8 * i)
	}
	return q, true
}

func (m *memory) put(t shadowpt.Target, addr, q uint64) {
	for i := range uint64(8) {
		m.bytes[location(t, addr+i)] = byte(q >> (8 * i))
	}
}

// slowWalk looks one byte of the address space up as the format is described,
// with arithmetic in place of fields.
func slowWalk(m *memory, s shadowpt.Space, va uint64) (target, addr, size uint64, fault string) {
	if va > s.Limit || va > 0xffffffffff {
		return 0, 0, 0, "limit"
	}
	read := func(target, addr uint64) (uint64, bool) { return m.Read64(shadowpt.Target(target), addr) }
	pde, ok := read(uint64(s.Target), s.Dir+va/0x8000000*8)
	if !ok {
		return 0, 0, 0, "no table"
	}
	big, small := pde%4, pde>>32%4
	if big == 0 && small == 0 {
		return 0, 0, 0, "no table"
	}
	if in := va % 0x8000000; in >= 0x8000000>>(pde/4%4) {
		return 0, 0, 0, "too short"
	}
	for _, l := range []struct{ code, table, page uint64 }{
		{big, pde % (1 << 32) / 16 * 4096, 0x20000}, {small, pde >> 36 * 4096, 0x1000},
	} {
		t := l.code
		switch l.code {
		case 0:
			continue
		case 1:
			t = 0
		}
		pte, ok := read(t, l.table+va%0x8000000/l.page*8)
		if !ok || pte%2 == 0 {
			continue
		}
		return pte >> 33 % 4, pte%(1<<32)/16*4096 + va%l.page, l.page, ""
	}
	return 0, 0, 0, "no page"
}

var faults = map[string]shadowpt.Reason{
	"limit": shadowpt.VMLimitExceeded, "no table": shadowpt.PTNotPresent,
	"too short": shadowpt.PTTooShort, "no page": shadowpt.PageNotPresent,
}

func check(t require.TestingT, m *memory, s shadowpt.Space, va uint64) {
	target, addr, size, fault := slowWalk(m, s, va)
	p, reason, ok := shadowpt.Walk(m, s, va)
	require.Equal(t, fault == "", ok, "%#x: %s", va, fault)
	if !ok {
		require.Equal(t, faults[fault], reason, "%#x", va)
		return
	}
	require.Equal(t, size, p.Size)
	require.Equal(t, va/size*size, p.VA)
	require.Equal(t, addr, p.Addr+va-p.VA)
	require.Equal(t, shadowpt.Target(target), p.Target)
}

func TestWalkAgainstSlowWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &memory{bytes: map[uint64]byte{}, holes: map[uint64]bool{}}
		target := rapid.SampledFrom([]shadowpt.Target{0, 0, 0, 1, 2, 3})
		// Few places, so that tables meet: they may be their own targets.
		spot := rapid.SampledFrom([]uint64{0, 0x1000, 0x10000, 0x20000, 0xfffffff000})
		s := shadowpt.Space{
			Dir: spot.Draw(t, "dir"), Target: target.Draw(t, "dir target"),
			Limit: rapid.SampledFrom([]uint64{0, 0xfff, 0x7ffffff, 0x8000fff, 0xffffffffff, ^uint64(0)}).Draw(t, "limit"),
		}
		offsets := rapid.SampledFrom([]uint64{0, 0xfff, 0x1000, 0x1ffff, 0x20000, 0xffffff, 0x1000000, 0x3ffffff, 0x4000000, 0x7fff000, 0x7ffffff})
		base := rapid.SampledFrom([]uint64{0, 0x8000000, 0xfff8000000, 0x10000000000})
		for range rapid.IntRange(1, 6).Draw(t, "entries") {
			pde := shadowpt.PDE{
				Big:   shadowpt.Table{Present: rapid.Bool().Draw(t, "big"), Target: target.Draw(t, "target"), Addr: spot.Draw(t, "table")},
				Small: shadowpt.Table{Present: rapid.Bool().Draw(t, "small"), Target: target.Draw(t, "target"), Addr: spot.Draw(t, "table")},
				Size:  rapid.Uint8Range(0, 3).Draw(t, "size code"),
			}
			va := base.Draw(t, "base")%shadowpt.VASize + offsets.Draw(t, "offset")
			m.put(s.Target, s.Dir+va/shadowpt.DirSpan*8, pde.Encode())
			decoded := shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{pde.Encode()})
			pte := rapid.Uint64().Draw(t, "pte")
			if rapid.Bool().Draw(t, "into the big table") {
				m.put(decoded.Big.Target, decoded.Big.Addr+va%shadowpt.DirSpan/shadowpt.BigPage*8, pte)
			} else {
				m.put(decoded.Small.Target, decoded.Small.Addr+va%shadowpt.DirSpan/shadowpt.SmallPage*8, pte)
			}
			if rapid.Bool().Draw(t, "hole") {
				m.holes[location(target.Draw(t, "hole target"), spot.Draw(t, "hole at"))>>12] = true
			}
			check(t, m, s, va)
			check(t, m, s, base.Draw(t, "base")+offsets.Draw(t, "offset"))
		}
	})
}

// A walk reads three entries at most, for any tables.
func FuzzWalk(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0}, uint64(0), uint64(0x1234))
	f.Add([]byte{0xf3, 0xff, 0xff, 0xff, 0xf2, 0xff, 0xff, 0xff, 7, 0, 0, 0, 6}, uint64(8), ^uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, dir, va uint64) {
		m := &memory{bytes: map[uint64]byte{}}
		for i, b := range data {
			m.bytes[uint64(i)] = b
			m.bytes[uint64(i)|systemBit] = b
		}
		s := shadowpt.Space{Dir: dir, Limit: ^uint64(0)}
		check(t, m, s, va)
		m.reads = 0
		shadowpt.Walk(m, s, va)
		require.LessOrEqual(t, m.reads, 3)
	})
}

func TestWalkDoesNotAllocate(t *testing.T) {
	m := &memory{bytes: map[uint64]byte{}}
	var mem shadowpt.Memory = m
	require.Zero(t, testing.AllocsPerRun(100, func() { shadowpt.Walk(mem, shadowpt.Space{Limit: ^uint64(0)}, 0x1000) }))
}

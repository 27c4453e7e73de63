package mmio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// smallSpace is the table that most tests use: registers of all kinds and an aperture in
// four pages. Calls of its effects and its window are recorded in calls.
func smallSpace(t testing.TB) *Space {
	t.Helper()
	memory := make([]byte, pageSize)
	var b Bindings
	b.OnWrite("NV_PMC_ENABLE", func(int, Write) {})
	b.OnRead("NV_PTIMER_TIME_0", func(_ int, v uint32) uint32 { return v + 0x20 })
	b.OnWindow("PRAMIN", Window{
		Read:  func(off uint32, p []byte) { copy(p, memory[off:]) },
		Write: func(off uint32, p []byte) { copy(memory[off:], p) },
	})
	s, err := New(4*pageSize, []Block{
		{Name: "PMC", Regs: []Reg{
			{Name: "NV_PMC_BOOT_0", Access: RO, Reset: 0x0c0000a3},
			{Name: "NV_PMC_INTR_0", Offset: 0x100, Access: W1C, Reset: 0xf},
			{Name: "NV_PMC_ENABLE", Offset: 0x200, Effect: "resets engines"},
			{Name: "NV_PMC_DEBUG", Offset: 0x210, Width: 1, Stub: true},
			{Name: "NV_PMC_DEBUG_MODE", Offset: 0x212, Width: 2, Reset: 0x1234},
		}},
		{Name: "PTIMER", Regs: []Reg{
			{Name: "NV_PTIMER_TIME_0", Offset: 0x1400, Access: RO, Effect: "the clock"},
			{Name: "NV_PTIMER_ALARM", Offset: 0x1420, Rep: []Dim{{4, 8}}},
		}},
	}, []Aperture{{Name: "PRAMIN", Offset: 3 * pageSize, Size: pageSize}}, &b)
	require.NoError(t, err)
	return s
}

func TestHolesHaveNames(t *testing.T) {
	s := smallSpace(t)
	for off, want := range map[uint32]string{
		0:          "NV_PMC_BOOT_0",
		3:          "NV_PMC_BOOT_0",
		4:          "NV_PMC_BOOT_0+0x4",
		0x1fe:      "NV_PMC_INTR_0+0xfe",
		0x210:      "NV_PMC_DEBUG",
		0x211:      "NV_PMC_DEBUG+0x1",
		0x213:      "NV_PMC_DEBUG_MODE",
		0x214:      "NV_PMC_DEBUG_MODE+0x2",
		0x1212:     "NV_PMC_DEBUG_MODE+0x1000",
		0x1214:     "NV_PTIMER_TIME_0-0x1ec",
		0x1438:     "NV_PTIMER_ALARM[3]",
		0x1434:     "NV_PTIMER_ALARM[2]+0x4",
		0x2439:     "NV_PTIMER_ALARM[3]+0x1001",
		0x2440:     "PRAMIN-0xbc0",
		0x3000:     "PRAMIN+0x0",
		0x3ffe:     "PRAMIN+0xffe",
		0x4000:     "outside+0x0",
		0xffffffff: "outside+0xffffbfff",
	} {
		require.Equal(t, want, s.NameOf(off), "offset %#x", off)
	}
	empty, err := New(4*pageSize, nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "hole 0x002000", empty.NameOf(0x2000))
}

// A guest that touches everything fills the list and no more.
func TestHoleListIsBounded(t *testing.T) {
	s, err := New(1<<20, nil, nil, nil)
	require.NoError(t, err)
	for off := uint32(0); off < 1<<20; off += 4 {
		s.Write32(off, off)
	}
	s.Read32(0)         // listed
	s.Read32(1<<20 - 4) // not listed
	m := s.Missed()
	require.Len(t, m.Holes, maxHoles)
	require.Equal(t, Hole{Offset: 0, Near: "hole 0x000000", Reads: 1, Writes: 1}, m.Holes[0])
	require.EqualValues(t, 1<<18, m.HoleWrites)
	require.EqualValues(t, 1<<18-maxHoles+1, m.Unlisted)
	require.EqualValues(t, 1<<20-4, s.Read32(1<<20-4), "storage continues")
}

func TestReset(t *testing.T) {
	s := smallSpace(t)
	intr := s.Cell("NV_PMC_INTR_0", 0)
	s.Write32(0x100, 3)
	s.Write32(0x104, 7)
	require.EqualValues(t, 0xc, intr.Get())
	s.Reset()
	require.EqualValues(t, 0xf, intr.Get(), "a cell outlives the reset")
	require.Zero(t, s.Read32(0x104))
	require.EqualValues(t, 2, s.Missed().HoleReads+s.Missed().HoleWrites, "counters go on")
	require.Zero(t, testing.AllocsPerRun(20, s.Reset))
	for off := uint32(0); off < s.Size(); off += 4 {
		s.Write32(off, ^off)
	}
	s.Reset()
	require.Empty(t, s.State().Values)
}

func TestCells(t *testing.T) {
	s := smallSpace(t)
	c := s.Cell("NV_PMC_DEBUG_MODE", 0)
	c.Set(1)
	require.EqualValues(t, 0x1235, c.Get())
	c.Clear(0x0230)
	require.EqualValues(t, 0x1005, c.Get())
	c.Put(0xabcdef)
	require.EqualValues(t, 0xcdef, c.Get())
	require.Zero(t, s.Cell("NV_PMC_DEBUG", 0).Get(), "the neighbour in the dword is untouched")
	require.Empty(t, s.Counts())
}

// The estimate is exact for the first SampleEvery accesses of each direction,
// and scales the sampled ones after them; one direction does not colour the
// other.
func TestTimes(t *testing.T) {
	var clock, cost int64
	var b Bindings
	b.On("NV_A", Hooks{
		Read:  func(_ int, v uint32) uint32 { clock += cost; return v },
		Write: func(int, Write) { clock += cost },
	})
	b.OnWindow("WINDOW", Window{
		Read:  func(uint32, []byte) { clock += cost },
		Write: func(uint32, []byte) { clock += cost },
	})
	s, err := New(2*pageSize, []Block{{Name: "B", Regs: []Reg{{Name: "NV_A", Effect: "takes time"}}}},
		[]Aperture{{Name: "WINDOW", Offset: pageSize, Size: pageSize}}, &b)
	require.NoError(t, err)
	s.clock, s.clockCost = func() int64 { clock += 3; return clock }, 3

	for _, c := range []struct {
		off uint32
		row int
	}{{0, 0}, {pageSize, 1}} {
		at := func() int64 { return int64(s.Counts()[c.row].Time) }
		cost = 1000
		s.Write32(c.off, 0)
		require.EqualValues(t, 1000, at())
		for i := range SampleEvery {
			cost = int64(i)
			s.Read32(c.off)
		}
		require.EqualValues(t, 1000+120, at(), "all of the first are timed")
		cost = 7
		for range 10*SampleEvery + 5 {
			s.Read32(c.off)
		}
		require.EqualValues(t, 1000+120+7*(10*SampleEvery+5), at())
	}

	s.clockCost = 1 << 40 // a clock that was slow just once
	s.Write32(0, 0)
	require.EqualValues(t, 1000+120+7*(10*SampleEvery+5), s.Counts()[0].Time, "no negative times")
}

// A window that leaves bytes alone shows zeroes, not what was in the buffer.
func TestLazyWindow(t *testing.T) {
	var b Bindings
	b.OnWindow("WINDOW", Window{Read: func(_ uint32, p []byte) { p[1] = 7 }, Write: func(uint32, []byte) {}})
	s, err := New(pageSize, nil, []Aperture{{Name: "WINDOW", Size: pageSize}}, &b)
	require.NoError(t, err)
	p := []byte{1, 2, 3, 4}
	s.Read(0, p)
	require.Equal(t, []byte{0, 7, 0, 0}, p)
}

// Effects may themselves access the space as a guest would, Read32 included.
func TestEffectsMayAccess(t *testing.T) {
	var s *Space
	var b Bindings
	b.OnRead("NV_INDEXED", func(_ int, v uint32) uint32 { return s.Read32(v) })
	b.OnWrite("NV_SOFT_RESET", func(_ int, w Write) {
		s.Reset()
		s.Write32(8, w.Data)
	})
	var err error
	s, err = New(pageSize, []Block{{Name: "B", Regs: []Reg{
		{Name: "NV_INDEXED", Effect: "reads the register it points at", Reset: 8},
		{Name: "NV_SOFT_RESET", Offset: 4, Effect: "resets all"},
		{Name: "NV_DATA", Offset: 8, Reset: 0x11223344},
	}}}, nil, &b)
	require.NoError(t, err)
	require.EqualValues(t, 0x1122, s.Read32(2), "across two registers, with a buffer in use")
	require.EqualValues(t, 0x11223344, s.Read32(0))
	s.Write32(0, 4)
	s.Write32(4, 0x55)
	require.EqualValues(t, 0x55, s.Read32(0), "reset to 8, then written")
}

// hotAccesses are the kinds of access a guest makes most.
var hotAccesses = []struct {
	name string
	off  uint32
	size int
}{
	{"register", 0x200, 4},
	{"register-with-effect", 0x1400, 4},
	{"repeated", 0x1430, 4},
	{"narrow-pair", 0x210, 4},
	{"two-registers", 0x1420, 8},
	{"straddling", 0x1ff, 2},
	{"aperture", 0x3000, 4},
	{"aperture-64", 0x3000, 64},
	{"hole", 0x104, 4},
	{"outside", 0x3ffe, 4},
}

func TestNoAllocations(t *testing.T) {
	for _, a := range hotAccesses {
		s := smallSpace(t)
		p := make([]byte, a.size)
		s.Read(a.off, p)
		require.Zero(t, testing.AllocsPerRun(200, func() { s.Read(a.off, p) }), "read of %s", a.name)
		require.Zero(t, testing.AllocsPerRun(200, func() { s.Write(a.off, p) }), "write of %s", a.name)
		s.Read32(a.off)
		require.Zero(t, testing.AllocsPerRun(200, func() { s.Read32(a.off); s.Write32(a.off, 1) }), "dword of %s", a.name)
	}
	s, err := New(1<<20, nil, nil, nil)
	require.NoError(t, err)
	s.Read32(0)
	off := uint32(0)
	require.Zero(t, testing.AllocsPerRun(5000, func() { s.Read32(off); off += 4 }), "holes never seen before")
}

package engine

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// checkReport releases a semaphore at an address that straddles two pages, the
// second of which is mapped late.
func checkReport(t *testing.T, class uint16, d uint32) {
	var g GR
	m := newTestMemory()
	va := uint64(0x7ff8)
	m.mapPage(va)
	env := newEnv(m)
	for _, w := range (writes{{0x1b00, 0}, {0x1b04, uint32(va)}, {0x1b08, 0xabcd0001}}) {
		require.Equal(t, Done, g.Method(env, class, w[0], w[1]))
	}
	o := g.Method(env, class, 0x1b0c, d)
	if d>>28&1 == 0 {
		require.Equal(t, Faulted, o)
		require.Equal(t, Fault{VA: 0x8000, Write: true, Reason: reasonNotPresent}, g.Fault)
		require.Zero(t, m.word(va), "the payload is visible before the time")
		m.mapPage(0x8000)
		o = g.Step(env)
	}
	require.Equal(t, Done, o)
	require.Equal(t, uint32(0xabcd0001), m.word(va))
	if d>>28&1 == 0 {
		require.Zero(t, m.word(va+4))
		require.EqualValues(t, testNow&0xffffffff, m.word(va+8))
		require.EqualValues(t, testNow>>32, m.word(va+12))
	}
	require.EqualValues(t, 1, env.Stats.Class(class).Semaphores.Load())
}

// TestReportAcquire: the acquire waits until memory holds at least, or exactly, the payload.
func TestReportAcquire(t *testing.T) {
	var g GR
	m := newTestMemory()
	m.mapPage(0x1000)
	env := newEnv(m)
	for _, w := range (writes{{0x1b04, 0x1008}, {0x1b08, 5}}) {
		require.Equal(t, Done, g.Method(env, 0x9097, w[0], w[1]))
	}
	set := func(v uint32) { binary.LittleEndian.PutUint32(m.pages[1][8:], v) }
	set(4)
	require.Equal(t, Busy, g.Method(env, 0x9097, 0x1b0c, 1|1<<16))
	require.Equal(t, Busy, g.Step(env))
	require.Equal(t, Busy, g.Method(env, 0x9097, 0x1b0c, 1), "a method is taken while work is left")
	set(6)
	require.Equal(t, Done, g.Step(env))
	require.Equal(t, Busy, g.Method(env, 0x9097, 0x1b0c, 1))
	set(5)
	require.Equal(t, Done, g.Step(env))
}

func TestReportSemaphore(t *testing.T) {
	for _, class := range []uint16{0x9097, 0x90c0} {
		checkReport(t, class, 0)
		checkReport(t, class, 1<<28)
	}
	checkReport(t, 0x9097, 0x1000f010)
}

// TestReports holds each kind of report that Mesa asks for against what Mesa
// then reads.
func TestReports(t *testing.T) {
	const seq = 0x12345
	for _, c := range []struct {
		name  string
		get   uint32
		first uint32
	}{
		{"time", 0x00005002, seq},
		{"occlusion", 0x0100f002, seq},
		{"stream-out offset", 0x0d005002, seq},
		{"primitives generated", 0x09005002, 0},
		{"primitives emitted, stream 2", 0x05805042, 0},
		{"primitives needed", 0x06805002, 0},
		{"overflow", 0x03005002, 0},
		{"overflow of any", 0x0f005002, 0},
		{"vertices", 0x00801002, 0},
		{"primitives", 0x01801002, 0},
		{"vertex shaders", 0x02802002, 0},
		{"geometry shaders", 0x03806002, 0},
		{"geometry primitives", 0x04806002, 0},
		{"clipper in", 0x07804002, 0},
		{"clipper out", 0x08804002, 0},
		{"pixels", 0x0980a002, 0},
		{"tess control", 0x0d808002, 0},
		{"tess evaluation", 0x0e809002, 0},
	} {
		var g GR
		m := newTestMemory()
		m.mapPage(0x1000)
		for i := range m.pages[1] {
			m.pages[1][i] = 0xff
		}
		env := newEnv(m)
		g.send(t, env, 0x9097, writes{{0x1b04, 0x1000}, {0x1b08, seq}, {0x1b0c, c.get}})
		require.Equal(t, c.first, m.word(0x1000), c.name)
		require.Zero(t, m.word(0x1004), c.name)
		require.EqualValues(t, testNow, uint64(m.word(0x100c))<<32|uint64(m.word(0x1008)), c.name)
		require.EqualValues(t, 0xffffffff, m.word(0x1010), c.name)
	}
}

func TestReportEvents(t *testing.T) {
	var g GR
	var events []Event
	m := newTestMemory()
	env := newEnv(m)
	env.Notify = func(ev Event) { events = append(events, ev) }
	g.send(t, env, 0x90c0, writes{{0x1b0c, 3 | 1<<20}})
	require.Equal(t, []Event{{0x90c0, EventAwaken}, {0x90c0, EventTrap}}, events)
	require.Equal(t, Illegal, g.Method(env, 0x90c0, 0x1b0c, 1))
	require.Equal(t, Refusal{0x90c0, BadEnum, 0x1b0c, 1}, g.Refusal)
}

// constCase is a run of constant-buffer words.
type constCase struct {
	VA, Size, Offset uint32
	Words            []uint32
	Bulk             bool
	Hole             bool
	Budget           int
}

var constCases = rapid.Custom(func(t *rapid.T) constCase {
	return constCase{
		VA:     0x10000 + uint32(rapid.IntRange(0, 0x2000).Draw(t, "va")),
		Size:   uint32(rapid.IntRange(64, 0x10000).Draw(t, "size")),
		Offset: uint32(rapid.IntRange(0, 40).Draw(t, "offset")),
		Words:  rapid.SliceOfN(rapid.Uint32Range(1, 1<<32-1), 1, 2000).Draw(t, "words"),
		Bulk:   rapid.Bool().Draw(t, "bulk"),
		Hole:   rapid.Bool().Draw(t, "hole"),
		Budget: rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "budget"),
	}
})

// checkConstants writes words to a constant buffer; those beyond its size must
// go nowhere.
func checkConstants(t *rapid.T, class uint16, c constCase) {
	var g GR
	m := newTestMemory()
	m.mapRange(0x10000, 0x14000)
	if c.Hole {
		delete(m.pages, uint64(c.VA/pageSize+1))
	}
	env := newEnv(m)
	env.Budget = c.Budget
	for _, w := range (writes{{0x2380, c.Size}, {0x2384, 0}, {0x2388, c.VA}, {0x238c, c.Offset}}) {
		require.Equal(t, Done, g.Method(env, class, w[0], w[1]))
	}
	end := func(o Outcome) {
		for n := 0; o == Faulted; n++ {
			require.Less(t, n, 3)
			f := g.Fault
			require.EqualValues(t, c.VA/pageSize+1, f.VA/pageSize)
			m.mapPage(f.VA)
			o = g.Step(env)
		}
		require.Equal(t, Done, o)
	}
	var data []byte
	for _, w := range c.Words {
		data = binary.LittleEndian.AppendUint32(data, w)
	}
	for k := 0; len(data) > 0; k++ {
		if c.Bulk {
			n, o := g.Inline(env, class, 0x2390, data)
			end(o)
			data = data[n:]
		} else {
			end(g.Method(env, class, 0x2390+uint32(k%16)*4, binary.LittleEndian.Uint32(data)))
			data = data[4:]
		}
	}
	dropped := 0
	for i, w := range c.Words {
		at := uint64(c.Offset) + 4*uint64(i)
		want := w
		if at+4 > uint64(c.Size) {
			want = 0
			dropped++
		}
		if m.pages[(uint64(c.VA)+at+3)/pageSize] != nil {
			require.Equal(t, want, m.word(uint64(c.VA)+at), "word %d", i)
		} else {
			require.Zero(t, want, "word %d", i)
		}
	}
	st := env.Stats.Class(class)
	require.EqualValues(t, dropped, st.Dropped.Load())
	require.EqualValues(t, len(c.Words)-dropped, st.InlineWords.Load())
}

func TestConstants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		class := rapid.SampledFrom([]uint16{0x9097, 0x90c0}).Draw(t, "class")
		checkConstants(t, class, constCases.Draw(t, "case"))
	})
}

func TestReportOneWord(t *testing.T) {
	var g GR
	m := newTestMemory()
	m.mapPage(0x1000)
	env := newEnv(m)
	for d, want := range map[uint32]uint32{2 | 1<<28: 7, 2 | 1<<21 | 1<<28: 0} {
		g.send(t, env, 0x9097, writes{{0x1b04, 0x1000}, {0x1b08, 7}, {0x1b0c, d}})
		require.Equal(t, want, m.word(0x1000))
	}
}

package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
)

// TestGolden: the state of a golden build is copied to new channels, and may contain
// methods that channels may not use.
func TestGolden(t *testing.T) {
	var golden GR
	require.True(t, golden.ApplyDefault(0x9097, 0x0810, 0xcf))
	require.True(t, golden.ApplyDefault(0x9097, 0x3ffc, 1))
	require.True(t, golden.ApplyDefault(0x9097, 0x19d0, 0x3c))
	require.False(t, golden.ApplyDefault(0x1234, 0x0810, 0))
	require.False(t, golden.ApplyDefault(0x9097, 0x4000, 0))
	require.False(t, golden.ApplyDefault(0x9097, 0x0811, 0))
	env := newEnv(newTestMemory())
	g := golden
	g.send(t, env, 0x9097, writes{{0x810, 0xd5}})
	require.EqualValues(t, 0xcf, golden.State(0x9097, 0x810))
	require.Empty(t, env.Stats.NotExecuted(), "a default was executed")
}

func TestMMEUpload(t *testing.T) {
	var g GR
	env := newEnv(newTestMemory())
	g.send(t, env, 0x9097, writes{{0x114, 0x7fe}, {0x118, 0x11}, {0x118, 0x22}, {0x118, 0x33}, {0x11c, 3}, {0x120, 0x44}, {0x120, 0x55}})
	require.EqualValues(t, []uint32{0x11, 0x22}, g.MME.Code[0x7fe:])
	require.EqualValues(t, []uint32{0, 0x44, 0x55, 0}, g.MME.Start[2:6])
	require.EqualValues(t, 1, env.Stats.Class(0x9097).Dropped.Load())
	g.send(t, env, 0x9097, writes{{0x114, 0xffffffff}, {0x118, 0x11}})
}

// TestInlineGeneral: a run of words for a method without a bulk path is the same
// as one by one, and stops behind the word that is refused.
func TestInlineGeneral(t *testing.T) {
	var g GR
	env := newEnv(newTestMemory())
	n, o := g.Inline(env, 0x9097, 0x118, []byte{1, 0, 0, 0, 2, 0, 0, 0})
	require.Equal(t, 8, n)
	require.Equal(t, Done, o)
	require.EqualValues(t, []uint32{1, 2}, g.MME.Code[:2])
	n, o = g.Inline(env, 0x9097, 0x238c, []byte{1, 0, 0, 0, 2, 0, 1, 0})
	require.Equal(t, 8, n)
	require.Equal(t, Illegal, o)
	require.Equal(t, Refusal{0x9097, BadBitfield, 0x238c, 0x10002}, g.Refusal)
	n, o = g.Inline(env, 0x9097, 0x3ffc, []byte{1, 0, 0, 0, 2, 0, 0, 0})
	require.Equal(t, 4, n)
	require.Equal(t, Illegal, o)
}

// TestRelaunch: a launch ends an upload that has not got its data.
func TestRelaunch(t *testing.T) {
	var g GR
	m := newTestMemory()
	m.mapRange(0x1000, 0x2000)
	env := newEnv(m)
	g.send(t, env, 0x9039, writes{{0x23c, 0x1000}, {0x31c, 64}, {0x320, 1}, {0x330, 0x2000}, {0x334, 9}, {0x300, 0x102111}, {0x304, ^uint32(0)}})
	g.send(t, env, 0x9039, writes{{0x31c, 4}, {0x23c, 0x1100}, {0x300, 0x100111}, {0x304, 0x5a5a5a5a}, {0x304, 1}})
	require.Zero(t, m.word(0x2000), "the first upload's semaphore was released")
	require.EqualValues(t, 0x5a5a5a5a, m.word(0x1100))
	require.EqualValues(t, 1, env.Stats.Class(0x9039).Dropped.Load())
}

// TestAbort: after a fault the work can be given up.
func TestAbort(t *testing.T) {
	var g GR
	m := newTestMemory()
	env := newEnv(m)
	g.send(t, env, 0x9039, writes{{0x31c, 64}, {0x320, 1}, {0x23c, 0x5000}})
	require.Equal(t, Faulted, g.Method(env, 0x9039, 0x300, 0x110))
	require.Equal(t, Fault{VA: 0, Reason: reasonNotPresent}, g.Fault)
	require.False(t, g.Idle())
	require.False(t, g.Waiting())
	require.Equal(t, Busy, g.Method(env, 0x9039, 0x31c, 1))
	require.EqualValues(t, 64, g.State(0x9039, 0x31c))
	n, o := g.Inline(env, 0x9039, 0x304, make([]byte, 8))
	require.Zero(t, n)
	require.Equal(t, Busy, o)
	g.Abort()
	require.True(t, g.Idle())
	require.Equal(t, Done, g.Step(env))
	require.Equal(t, Done, g.Method(env, 0x9039, 0x31c, 1))

	var c CE
	c.send(t, env, writes{{0x324, 64}, {0x328, 1}})
	require.Equal(t, Faulted, c.Method(env, 0x300, 0x110))
	require.Equal(t, Busy, c.Method(env, 0x324, 1))
	require.False(t, c.Idle())
	c.Abort()
	require.True(t, c.Idle())
	require.Equal(t, Done, c.Step(env))
}

// TestOntoItself: a copy onto exactly itself changes nothing.
func TestOntoItself(t *testing.T) {
	var g GR
	m := newTestMemory()
	m.mapRange(0x1000, 0x4000)
	for i := range uint64(0x4000) {
		m.store(0x1000+i, pattern(i))
	}
	before := m.clone()
	env := newEnv(m)
	for _, launch := range []uint32{0x000, 0x110} {
		g.send(t, env, 0x9039, writes{{0x310, 0x1000}, {0x23c, 0x1000}, {0x314, 100}, {0x318, 100}, {0x208, 100}, {0x20c, 80}, {0x224, 100}, {0x228, 80}, {0x31c, 90}, {0x320, 40}, {0x300, launch}})
		require.Equal(t, before.pages, m.pages)
	}
}

// TestRenderEnableOfClasses: launches, clears and blits are skipped as the condition of their own class says.
func TestRenderEnableOfClasses(t *testing.T) {
	tests := []struct {
		class, condition, override uint32
		work                       writes // must be refused, or be counted as not executed, if it is not skipped
	}{
		{0x90c0, 0x1558, 0x1944, writes{{0x250, 3}, {0x368, 0}}},
		{0x9097, 0x1558, 0x1944, writes{{0x19d0, 0x40}}},
		{0x902d, 0x26c, 0x2dc, writes{{0x8dc, 0}}},
	}
	for _, test := range tests {
		for other := range tests {
			for _, off := range []uint32{tests[other].condition, tests[other].override} {
				var g GR
				env := newEnv(newTestMemory())
				g.send(t, env, uint16(tests[other].class), writes{{off, map[bool]uint32{true: 0, false: 2}[off == tests[other].condition]}})
				outcome := Done
				for _, w := range test.work {
					outcome = g.Method(env, uint16(test.class), w[0], w[1])
				}
				skipped := outcome == Done && len(env.Stats.NotExecuted()) == 0
				require.Equal(t, tests[other].class == test.class, skipped, "%04x by %04x", test.class, tests[other].class)
			}
		}
	}
	var g GR
	m := newTestMemory()
	m.mapPage(0x1000)
	env := newEnv(m)
	g.send(t, env, 0x90c0, writes{{0x2380, 256}, {0x2388, 0x1000}, {0x1558, 0}, {0x2390, 7}, {0x30c, 1}, {0x2390, 8}, {0x1558, 1}, {0x2390, 9}})
	require.Equal(t, []uint32{7, 0, 9}, []uint32{m.word(0x1000), m.word(0x1004), m.word(0x1008)}, "constants that obey are skipped")
}

// TestRenderEnable: launches are carried out or skipped as the last
// SET_RENDER_ENABLE said.
func TestRenderEnable(t *testing.T) {
	for _, c := range []struct {
		name     string
		list     writes
		memory   [6]uint32
		executed bool
	}{
		{name: "reset", executed: true},
		{name: "false", list: writes{{0x340, 0}}},
		{name: "true", list: writes{{0x340, 0}, {0x340, 1}}, executed: true},
		{name: "always", list: writes{{0x340, 0}, {0x308, 1}}, executed: true},
		{name: "never", list: writes{{0x308, 2}}},
		{name: "conditional, zero", list: writes{{0x33c, 0x3000}, {0x340, 2}}, memory: [6]uint32{7, 0}},
		{name: "conditional", list: writes{{0x33c, 0x3000}, {0x340, 2}}, memory: [6]uint32{7, 1}, executed: true},
		{name: "equal", list: writes{{0x33c, 0x3000}, {0x340, 3}}, memory: [6]uint32{7, 1, 0, 0, 7, 1}, executed: true},
		{name: "equal, differs", list: writes{{0x33c, 0x3000}, {0x340, 3}}, memory: [6]uint32{7, 1, 0, 0, 7, 2}},
		{name: "not equal", list: writes{{0x33c, 0x3000}, {0x340, 4}}, memory: [6]uint32{7, 1, 0, 0, 7, 2}, executed: true},
		{name: "not equal, equals", list: writes{{0x33c, 0x3000}, {0x340, 4}}, memory: [6]uint32{7, 1, 0, 0, 7, 1}},
	} {
		var g GR
		m := newTestMemory()
		m.mapRange(0x1000, 0x3000)
		for i, w := range c.memory {
			binary.LittleEndian.PutUint32(m.pages[3][4*i:], w)
		}
		m.store(0x1000, 0x77)
		env := newEnv(m)
		g.send(t, env, 0x9039, c.list)
		g.send(t, env, 0x9039, writes{{0x310, 0x1000}, {0x23c, 0x2000}, {0x31c, 1}, {0x320, 1}, {0x300, 0x110}})
		require.Equal(t, c.executed, m.load(0x2000) == 0x77, c.name)
	}
	var g GR
	env := newEnv(newTestMemory())
	require.Equal(t, Faulted, g.Method(env, 0x9039, 0x340, 3))
	require.Equal(t, Faulted, g.Step(env))
	require.Equal(t, Illegal, (&GR{}).Method(env, 0x9039, 0x340, 5))
}

// TestNoAllocations: nothing is allocated on any path, faults included.
func TestNoAllocations(t *testing.T) {
	env := newEnv(everywhere{})
	var g GR
	var c CE
	data := make([]byte, 4096)
	g.send(t, env, 0x9039, writes{{0x31c, 4096}, {0x320, 4}, {0x208, 4096}, {0x224, 4096}, {0x20c, 8}, {0x228, 8}, {0x314, 8000}, {0x318, 8000}})
	g.send(t, env, 0x9097, writes{{0x2380, 0x10000}})
	c.send(t, env, writes{{0x324, 100}, {0x328, 20}, {0x31c, 5000}, {0x204, 100}, {0x32c, 0x03330213}})
	for name, f := range map[string]func(){
		"stored":       func() { g.Method(env, 0x9097, 0x1618, 0) },
		"refused":      func() { g.Method(env, 0x9097, 0x3ffc, 0) },
		"not executed": func() { g.Method(env, 0x9097, 0x19d0, 0) },
		"pitch":        func() { finish(g.Method(env, 0x9039, 0x300, 0x12110), func() Outcome { return g.Step(env) }) },
		"tile":         func() { finish(g.Method(env, 0x9039, 0x300, 0x010), func() Outcome { return g.Step(env) }) },
		"untile":       func() { finish(g.Method(env, 0x9039, 0x300, 0x100), func() Outcome { return g.Step(env) }) },
		"retile":       func() { finish(g.Method(env, 0x9039, 0x300, 0x000), func() Outcome { return g.Step(env) }) },
		"upload": func() {
			g.Method(env, 0x9039, 0x300, 0x111)
			g.Method(env, 0x9039, 0x304, 1)
			for range 4 {
				g.Inline(env, 0x9039, 0x304, data)
			}
		},
		"report":    func() { g.Method(env, 0x9097, 0x1b0c, 0) },
		"constants": func() { g.Method(env, 0x9097, 0x238c, 0); g.Inline(env, 0x9097, 0x2390, data) },
		"constant":  func() { g.Method(env, 0x9097, 0x238c, 0); g.Method(env, 0x9097, 0x2390, 7) },
		"CE linear": func() { finish(c.Method(env, 0x300, 0x1110), func() Outcome { return c.Step(env) }) },
		"CE tiled":  func() { finish(c.Method(env, 0x300, 0x1000), func() Outcome { return c.Step(env) }) },
		"CE format": func() { finish(c.Method(env, 0x300, 0x1101), func() Outcome { return c.Step(env) }) },
	} {
		require.True(t, g.Idle() && c.Idle(), name)
		require.Zero(t, testing.AllocsPerRun(20, f), name)
	}
	nowhere := newEnv(&holes{})
	g.Method(nowhere, 0x9039, 0x300, 0x110)
	require.Zero(t, testing.AllocsPerRun(20, func() { g.Step(nowhere) }), "fault")
}

// holes is memory that has nothing.
type holes struct{ fault Fault }

func (h *holes) Bytes(va uint64, _ int, write bool) ([]byte, *Fault) {
	h.fault = Fault{VA: va, Write: write, Reason: reasonNotPresent}
	return nil, &h.fault
}

// cold is memory that moves a clock on with each look-up, as if the process touched a page for the
// first time.
type cold struct {
	everywhere
	env  *Env
	now  uint64
	code [pageSize]byte // at programAt
}

func (m *cold) Bytes(va uint64, n int, write bool) ([]byte, *Fault) {
	m.now += 5000
	m.env.Charge(CostLookup)
	if at := va - programAt; at < pageSize {
		return m.code[at:min(at+uint64(n), pageSize)], nil
	}
	return m.everywhere.Bytes(va, n, write)
}

// pagesApart is a program that executes an instruction on a page of each lane, at $r2d.
const pagesApart = `
	mov b32 $r0 $laneid
	shl b32 $r2 $r0 clamp 0xc
	mov b32 $r3 0x1
	mov b32 $r0 0x80
again:
	add b32 $r2 $r2 0x20000
	%s
	sub b32 $r0 $r0 0x1
	set $p0 0x1 gt u32 $r0 0x0
	$p0 bra again
	exit`

// TestStepsEndInTime: any mix of work stops soon after the step's time is over.
func TestStepsEndInTime(t *testing.T) {
	const length, pitch, tiled = 1 << 20, 1<<4 | 1<<8, 1 << 8
	geometry := func(length, lines, pitch uint32) writes {
		return writes{{0x314, pitch}, {0x318, pitch}, {0x31c, length}, {0x320, lines}, {0x208, length}, {0x20c, lines}, {0x204, 0x50}}
	}
	launches := func(n int, launch uint32) (data []byte) {
		for range n {
			data = binary.LittleEndian.AppendUint32(data, launch)
		}
		return data
	}
	for _, tc := range []struct {
		name   string
		setup  writes
		method uint32
		data   []byte
	}{
		{"pages apart", geometry(length, 1, 0), 0x300, launches(1, pitch)},
		{"lines of two bytes", geometry(2, 8191, pageSize), 0x300, launches(16, pitch)},
		{"no lines", geometry(0, 0, 0), 0x300, launches(1<<16, pitch)},
		{"cells", geometry(8, 1<<16, pageSize), 0x300, launches(1, tiled)},
		{"upload", append(geometry(1, 1<<16, pageSize), [2]uint32{0x300, pitch | launchInline}), 0x304, launches(1<<14, 0)},
		{"conditions", nil, 0x340, launches(1<<16, renderIfEqual)},
		{"loads", nil, 0, []byte("ld b32 $r4 ca g[$r2d]")},
		{"stores", writes{{0x238, 1<<16 | 1}}, 0, []byte("st b32 wb g[$r2d] $r4")},
		{"atomics", nil, 0, []byte("red add u32 g[$r2d] $r4")},
		{"atomics lane by lane", nil, 0, []byte("red inc u32 g[$r2d] $r4")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var g GR
			m := &cold{}
			env := newEnv(m)
			m.env, env.Processors = env, newProcessors(1) // the clock would add up what processors do at once
			env.Clock = func() uint64 { return m.now }
			env.Begin(1 << 40)
			class := uint16(0x9039)
			if tc.method == 0 { // the data are an instruction
				class, tc.method, tc.setup = 0x90c0, 0x368, append(program(40), tc.setup...)
				words, err := isa.Assemble(fmt.Sprintf(pagesApart, tc.data))
				require.NoError(t, err)
				_, err = binary.Encode(m.code[:], binary.LittleEndian, words)
				require.NoError(t, err)
				tc.data = launches(1, 0)
			}
			g.send(t, env, class, tc.setup)
			const stepTime, most = 500_000, 1_500_000
			steps, o := 0, Done
			for data := tc.data; len(data) > 0 || o == Busy; steps++ {
				began := m.now
				env.Begin(began + stepTime)
				for !env.Over() && (len(data) > 0 || o == Busy) {
					if o == Busy {
						o = g.Step(env)
						continue
					}
					var n int
					env.Charge(CostWord)
					n, o = g.Inline(env, class, tc.method, data)
					require.NotEqual(t, Illegal, o)
					data = data[n:]
				}
				require.LessOrEqual(t, m.now-began, uint64(most))
			}
			require.Equal(t, Done, o)
			require.NotZero(t, steps)
		})
	}
}

// TestHuge: the largest launch is still divided into steps of bounded size.
func TestHuge(t *testing.T) {
	for _, launch := range []uint32{0x000, 0x010, 0x100, 0x110} {
		for _, length := range []uint32{7, ^uint32(0)} {
			var g GR
			env := newEnv(everywhere{})
			env.Budget = 64 << 10
			g.send(t, env, 0x9039, writes{{0x314, 1}, {0x318, 1}, {0x31c, length}, {0x320, ^uint32(0)}, {0x208, ^uint32(0)}, {0x20c, ^uint32(0)},
				{0x228, ^uint32(0)}, {0x220, 0x550}, {0x204, 0x550}})
			require.Equal(t, Busy, g.Method(env, 0x9039, 0x300, launch))
			require.Equal(t, Busy, g.Step(env))
			require.LessOrEqual(t, env.Stats.Class(0x9039).Bytes.Load(), uint64(2*(env.Budget+texture.GOBBytes)))
		}
	}
}

package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// programAt is where the tests' programs are, and programData what they store to.
const (
	programAt   = 0x10_0000
	programData = 0x20_0000
)

// prepare assembles a program for a grid of 8 blocks of 40 threads.
func (g *GR) prepare(t require.TestingT, env *Env, m *testMemory, text string) {
	words, err := isa.Assemble(text)
	require.NoError(t, err)
	for i, w := range words {
		for b := range 8 {
			m.store(programAt+uint64(i*8+b), byte(w>>(8*b)))
		}
	}
	g.send(t, env, 0x90c0, program(40))
}

// program describes a launch of the program in 8 blocks.
func program(threads uint32) writes {
	return writes{
		{0x160c, programAt}, {0x238, 1<<16 | 8}, {0x23c, 1}, {0x3ac, 1<<16 | threads}, {0x3b0, 1}, {0x250, threads}, {0x2c0, 16}, {0x20c, 0x800},
	}
}

// Each thread stores its number to a word of its own, from programData on, after some time.
const storeNumber = `
	mov b32 $r0 0x100
wait:
	sub b32 $r0 $r0 0x1
	set $p0 0x1 gt u32 $r0 0x0
	$p0 bra wait
	mov b32 $r0 $ctaidx
	mov b32 $r1 $tidx
	mov b32 $r2 0x28
	mul $r0 u32 $r0 u32 $r2
	add b32 $r0 $r0 $r1
	shl b32 $r2 $r0 clamp 0x2
	add b32 $r2 $r2 0x200000
	mov b32 $r3 0x0
	st b32 wb g[$r2d] $r0
	exit
`

// TestProgramRuns: every thread of every block runs, in steps of any length, with any number of
// processors, and whichever executors they have.
func TestProgramRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g GR
		m := newTestMemory()
		m.mapPage(programData)
		env := newEnv(m)
		g.prepare(t, env, m, storeNumber)
		all := []*Processors{newProcessors(1), newProcessors(3), newProcessors(8)}
		all = append(all, NewProcessors(2, func() sm.Executor { return new(interp.Executor) }))
		steps, now := 0, uint64(0)
		env.Clock = func() uint64 { now++; return now }
		for o := g.Method(env, 0x90c0, 0x368, 0); o != Done; o = g.Step(env) {
			require.Equal(t, Busy, o)
			env.Processors = rapid.SampledFrom(all).Draw(t, "processors")
			env.Begin(now + rapid.Uint64Range(0, 5).Draw(t, "time"))
			steps++
		}
		require.Greater(t, steps, 1)
		for i := range uint32(320) {
			require.Equal(t, i, m.word(programData+uint64(i)*4))
		}
		require.Zero(t, m.word(programData+1280))
		require.EqualValues(t, 1, env.Stats.Programs())
	})
}

// TestBlocksAtOnce: blocks that run at the same time lose no update of memory that they share, and
// each has local memory of its own. A lost update is rare, but the race detector sees each.
func TestBlocksAtOnce(t *testing.T) {
	const text = `
	mov b32 $r2 0x200000
	mov b32 $r3 0x0
	mov b32 $r4 0x1
	mov b32 $r5 0x0
	mov b32 $r6 0xffffffff
	mov b32 $r7 0x0
	mov b32 $r8 $ctaidx
	mov b32 $r0 0x200
again:
	st b32 wb l[0x4] $r8
	red add u32 g[$r2d] $r4
	red inc u32 g[$r2d+0x4] $r6
	add u64 g[$r2d+0x8] $r4d
	ld b32 $r9 ca l[0x4]
	set $p0 0x1 ne u32 $r9 $r8
	$p0 red add u32 g[$r2d+0x10] $r4
	sub b32 $r0 $r0 0x1
	set $p0 0x1 gt u32 $r0 0x0
	$p0 bra again
	exit`
	const updates = 8 * 40 * 0x200
	var g GR
	m := newTestMemory()
	m.mapPage(programData)
	m.mapPage(0x30_0000)
	env := newEnv(m)
	env.Processors = newProcessors(8)
	g.prepare(t, env, m, text)
	g.send(t, env, 0x90c0, writes{{0x204, 0x10}, {0x790, 0}, {0x794, 0x30_0000}, {0x798, 0}, {0x79c, 3 * 64 * 0x10}}) // for three blocks
	require.Equal(t, Done, finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { return g.Step(env) }))
	for at, want := range []uint32{updates, updates, updates, 0, 0} {
		require.Equal(t, want, m.word(programData+uint64(4*at)), at)
	}
}

// TestLocksOfBlocks: blocks that wait for each other end, also if fewer processors go on with them than
// began them.
func TestLocksOfBlocks(t *testing.T) {
	const text = `
	mov b32 $r2 0x200000
	mov b32 $r3 0x0
	mov b32 $r4 0x0
	mov b32 $r5 $ctaidx
	add b32 $r5 $r5 0x1
	mov b32 $r10 0x20
take:
	cas b32 $r6 g[$r2d] $r4 $r5
	set $p0 0x1 ne u32 $r6 0x0
	$p0 bra take
	mov b32 $r7 0x800
hold:
	sub b32 $r7 $r7 0x1
	set $p0 0x1 gt u32 $r7 0x0
	$p0 bra hold
	ld b32 $r8 cg g[$r2d+0x4]
	add b32 $r8 $r8 0x1
	st b32 wb g[$r2d+0x4] $r8
	membar gl
	exch b32 $r6 g[$r2d] $r4
	sub b32 $r10 $r10 0x1
	set $p0 0x1 gt u32 $r10 0x0
	$p0 bra take
	exit`
	var g GR
	m := newTestMemory()
	m.mapPage(programData)
	env := newEnv(m)
	env.Processors = newProcessors(8)
	g.prepare(t, env, m, text)
	g.send(t, env, 0x90c0, program(1))
	now := uint64(0)
	env.Clock = func() uint64 { now++; return now }
	env.Begin(now + 5)
	require.Equal(t, Busy, g.Method(env, 0x90c0, 0x368, 0))
	for m.word(programData) < 2 { // until another than the first block has the lock
		env.Begin(now + 5)
		require.Equal(t, Busy, g.Step(env))
	}
	env.Processors = newProcessors(1)
	steps := 0
	require.Equal(t, Done, finish(Busy, func() Outcome {
		steps++
		require.Less(t, steps, 10000, "it makes no progress")
		env.Begin(now + 5)
		return g.Step(env)
	}))
	require.EqualValues(t, 8*0x20, m.word(programData+4))
}

// TestBlocksBeginClear: a program finds nothing in its registers and in shared memory of what an earlier
// one left there, of its own channel or of another.
func TestBlocksBeginClear(t *testing.T) {
	const (
		secret = 0x5ec2e7
		begin  = "mov b32 $r2 0x200000\nmov b32 $r3 0x0\nmov b32 $r4 0x1\nmov b32 $r0 0x20\n"
		leave  = begin + "mov b32 $r8 0x5ec2e7\nst b32 s[$r0] $r8\nld b32 $r9 s[$r0]\nred or u32 g[$r2d] $r9\nexit"
		find   = begin + "red add u32 g[$r2d] $r4\nred or u32 g[$r2d+0x4] $r8\nld b32 $r9 s[$r0]\nred or u32 g[$r2d+0x8] $r9\nexit"
	)
	processors := newProcessors(3)
	var channels [2]struct {
		GR
		mem *testMemory
		env *Env
	}
	run := func(channel int, text string) (found [3]uint32) {
		c := &channels[channel]
		if c.env == nil {
			c.mem = newTestMemory()
			c.mem.mapPage(programData)
			c.env = newEnv(c.mem)
			c.env.Processors = processors
		}
		clear(c.mem.pages[programData/pageSize])
		c.prepare(t, c.env, c.mem, text)
		c.send(t, c.env, 0x90c0, writes{{0x24c, 0x100}})
		require.Equal(t, Done, finish(c.Method(c.env, 0x90c0, 0x368, 0), func() Outcome { return c.Step(c.env) }))
		for at := range found {
			found[at] = c.mem.word(programData + uint64(4*at))
		}
		return found
	}
	for next := range channels {
		require.EqualValues(t, secret, run(0, leave)[0])
		require.Equal(t, [3]uint32{320, 0, 0}, run(next, find), "threads, registers and shared memory, channel %d", next)
	}
}

// TestMemoryMovesBetweenSteps: a launch's memory is looked up once, and anew after its pages were dropped.
func TestMemoryMovesBetweenSteps(t *testing.T) {
	var g GR
	m := newTestMemory()
	m.mapPage(programData)
	env := newEnv(m)
	env.Processors = newProcessors(1) // another may begin in a later step, and look its program up
	g.prepare(t, env, m, "mov b32 $r2 0x200000\nmov b32 $r3 0x0\nmov b32 $r4 0x1\nagain:\nred add u32 g[$r2d] $r4\nbra again")
	now := uint64(0)
	env.Clock = func() uint64 { now++; return now }
	env.Begin(now + 5)
	require.Equal(t, Busy, g.Method(env, 0x90c0, 0x368, 0))
	for range 20 {
		old, counted := m.pages[programData/pageSize], m.word(programData)
		m.pages[programData/pageSize] = make([]byte, pageSize)
		env.Pages.Drop()
		env.Begin(now + 5)
		require.Equal(t, Busy, g.Step(env))
		require.Equal(t, counted, binary.LittleEndian.Uint32(old), "stored to memory that was unmapped")
		require.NotZero(t, m.word(programData))
		counted, calls := m.word(programData), m.calls
		env.Begin(now + 5)
		require.Equal(t, Busy, g.Step(env))
		require.Greater(t, m.word(programData), counted)
		require.Equal(t, calls, m.calls, "looked up again")
	}
}

// brokenMemory panics when a program reaches its data.
type brokenMemory struct{ *testMemory }

func (m brokenMemory) Bytes(va uint64, n int, write bool) ([]byte, *Fault) {
	if va >= programData {
		panic("broken")
	}
	return m.testMemory.Bytes(va, n, write)
}

// TestProcessorPanics: what panics in a processor's goroutine panics in the step's.
func TestProcessorPanics(t *testing.T) {
	var g GR
	m := newTestMemory()
	env := newEnv(brokenMemory{m})
	g.prepare(t, env, m, storeNumber)
	defer func() { require.Contains(t, string(recover().(Broken)), "broken, at grid_test.go") }()
	finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { return g.Step(env) })
}

// TestProgramEnds: a program that does what it must not, or does not end, is stopped alone.
func TestProgramEnds(t *testing.T) {
	start := func(text string) (*GR, *Env, *string) {
		g, said := new(GR), new(string)
		m := newTestMemory()
		env := newEnv(m)
		env.ProgramFault = func(err error) { *said = err.Error() }
		g.prepare(t, env, m, text)
		now := uint64(0)
		env.Clock = func() uint64 { now++; return now }
		env.Begin(50)
		return g, env, said
	}
	g, env, _ := start(storeNumber) // its data are not mapped
	for range 2 {
		require.Equal(t, Faulted, finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { env.Begin(1000); return g.Step(env) }))
		require.EqualValues(t, programData, g.Fault.VA&^(pageSize-1)) // of any block
		require.Equal(t, Faulted, g.Step(env), "there is no way back into the instruction")
		g.Abort()
		require.True(t, g.Idle())
	}
	g, env, said := start("mov b32 $r60 0x1\nexit")
	require.Equal(t, Illegal, g.Method(env, 0x90c0, 0x368, 7))
	require.Equal(t, Refusal{0x90c0, BadProgram, 0x368, 7}, g.Refusal)
	require.Contains(t, *said, "register out of bounds at 0x0")
	require.True(t, g.Idle())

	// A macro ends with the program that it launched, also in a later step.
	g, env, _ = start("mov b32 $r0 0x1000\nwait:\nsub b32 $r0 $r0 0x1\nset $p0 0x1 gt u32 $r0 0x0\n$p0 bra wait\nbrk")
	g.upload(t, env, 1, macroMethod(0x368, 0), macroSend, macroNop|macroEnds, macroNop)
	env.Begin(0)
	require.Equal(t, Busy, g.Method(env, 0x90c0, 0x3808, 7))
	require.Equal(t, Illegal, finish(Busy, func() Outcome { env.Begin(0); return g.Step(env) }))
	require.True(t, g.Idle())

	for _, high := range []string{"0x100", "0x7f00"} { // the low 40 bits are the address of the data
		for _, access := range []string{"st b32 wb g[$r2d] $r0", "ld b32 $r0 ca g[$r2d]", "ld add u32 $r0 g[$r2d] $r0"} {
			g, env, said = start("mov b32 $r2 0x200000\nmov b32 $r3 " + high + "\n" + access + "\nexit")
			env.Mem.(*testMemory).mapPage(programData)
			require.Equal(t, Illegal, finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { env.Begin(1000); return g.Step(env) }), access)
			require.Contains(t, *said, "address not mapped")
			require.Contains(t, *said, high+"00200000")
		}
	}

	g, env, _ = start("bra 0x0")
	require.Equal(t, Busy, g.Method(env, 0x90c0, 0x368, 0))
	for range 5 {
		require.True(t, env.Over())
		env.Begin(1 << 20)
		env.Clock = func() uint64 { return 1 << 20 }
		require.Equal(t, Busy, g.Step(env))
	}
	g.Abort()
	require.True(t, g.Idle())
}

// TestLaunchState: the state of a launch bounds its program, or says by name what is missing here.
func TestLaunchState(t *testing.T) {
	const (
		barrier = "bar popc 0x1 0x0 0x3 0x0 0x1\nexit"
		nested  = "mov b32 $r0 0xff\nagain:\npreret end\nsub b32 $r0 $r0 0x1\nset $p0 0x1 gt u32 $r0 0x0\n$p0 bra again\nend:\nexit"
	)
	itself := writes{{0x2c4, 1}}
	for i := range uint32(256) {
		itself = append(itself, [2]uint32{0x2c8, 0xc<<28 | i<<16 | i})
	}
	for name, c := range map[string]struct {
		text  string
		state writes
		said  string // empty: the program runs
	}{
		"the last barrier":           {barrier, writes{{0x254, 4}}, ""},
		"a barrier too far":          {barrier, writes{{0x254, 3}}, "bad barrier"},
		"deeper than the stack":      {nested, writes{{0x20c, 0x800}}, ""},
		"no stack":                   {nested, writes{{0x20c, 0}}, ""},
		"addresses mapped to others": {"exit", append(itself, [2]uint32{0x2c8, 0xc<<28 | 7<<16 | 8}), "LOAD_GA_TO_VA_MAPPING_ENTRY"},
		"addresses not writable":     {"exit", append(itself, [2]uint32{0x2c8, 0x4<<28 | 7<<16 | 7}), "LOAD_GA_TO_VA_MAPPING_ENTRY"},
		"mapped to themselves":       {"exit", itself, ""},
		"the map is off":             {"exit", writes{{0x2c8, 7 << 16}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var g GR
			m := newTestMemory()
			env := newEnv(m)
			said := ""
			env.ProgramFault = func(err error) { said = err.Error() }
			g.prepare(t, env, m, c.text)
			g.send(t, env, 0x90c0, c.state)
			o := g.Method(env, 0x90c0, 0x368, 7)
			require.True(t, g.Idle())
			if c.said == "" {
				require.Equal(t, Done, o, said)
				return
			}
			require.Equal(t, Illegal, o)
			require.Equal(t, Refusal{0x90c0, BadProgram, 0x368, 7}, g.Refusal)
			require.Contains(t, said, c.said)
		})
	}
}

// TestHostileLaunches: whatever a launch asks for, and whatever its program is, a step ends after a
// few instructions, and takes bounded memory.
func TestHostileLaunches(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 0xc0))
	var g GR
	m := newTestMemory()
	for page := range uint64(8) {
		m.mapPage(programAt + page<<12)
	}
	env := newEnv(m)
	looks := uint64(0)
	env.Clock = func() uint64 { looks++; return looks }
	value := func(usual uint32) uint32 {
		return []uint32{usual, usual, usual, usual, usual, usual, 0, 1, random.Uint32() >> random.UintN(32), ^uint32(0)}[random.IntN(10)]
	}
	forms := isa.Forms()
	loop, err := isa.Assemble("bra 0x0")
	require.NoError(t, err)
	outcomes := make(map[Outcome]int)
	for range 500 {
		at := uint64(programAt)
		put := func(w uint64) {
			for b := range 8 {
				m.store(at, byte(w>>(8*b)))
				at++
			}
		}
		for range random.IntN(8) {
			f := forms[random.IntN(len(forms))]
			guard := []uint64{7, 15, 15}[random.IntN(3)] << 10 // always, or never
			w := f.Value | random.Uint64()&random.Uint64()&random.Uint64()&^f.Mask&^(15<<10) | guard
			if in, err := isa.Decode(w, 0); err == nil && in.Size == 8 {
				put(w)
			}
		}
		put(loop[0])
		x, y, z := value(32), value(1), value(1)
		for _, w := range (writes{
			{0x160c, value(programAt)}, {0x238, value(8 | 8<<16)}, {0x23c, value(1)}, {0x3ac, x&0xffff | y<<16}, {0x3b0, z},
			{0x250, value(x & 0xffff * (y & 0xffff) * (z & 0xffff))}, {0x2c0, value(63)}, {0x20c, value(1 << 20)}, {0x24c, value(48 << 10)},
			{0x204, value(0x100)}, {0x208, value(0x40)}, {0x790, 0}, {0x794, value(programAt)}, {0x798, value(0xff)}, {0x79c, value(1 << 20)},
		}) {
			g.Method(env, 0x90c0, w[0], w[1]) // some are refused
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		env.Begin(looks + 50)
		o := g.Method(env, 0x90c0, 0x368, 0)
		for range 5 {
			outcomes[o]++
			if o != Busy {
				break
			}
			began := looks
			env.Begin(began + 50)
			o = g.Step(env)
			require.LessOrEqual(t, looks-began, uint64(51))
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
		g.Abort()
	}
	for _, o := range []Outcome{Done, Busy, Faulted, Illegal} {
		require.Positive(t, outcomes[o], "no launch was %v", o)
	}
}

// TestSurfaces: what a program stores to a surface is in the picture, converted, and is loaded from
// there; outside of it there is nothing.
func TestSurfaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := newEnv(pixelMemory())
		p := drawPicture(t, "surface", 0x1000_0000)
		p.pitch = 0
		want := make([]byte, p.width*p.height*p.bytes())
		p.store(t, env, want)
		r := NewUnits(oneProcessor(env).memory, nil, new([sm.Surfaces]sm.Surface))
		r.surfaces[3] = sm.Surface{Address: p.va, Width: p.width, Height: p.height, Format: p.code, Log2Block: [2]uint8{0, uint8(p.high)}}
		for range 20 {
			x, y := rapid.Uint32Range(0, 100).Draw(t, "x"), rapid.Uint32Range(0, 50).Draw(t, "y")
			color := [4]uint32{rapid.Uint32().Draw(t, "color"), 0x3f000000, 0xbf800000, 1}
			pixel := interp.Pixel{Inst: &isa.Inst{Op: isa.SurfStoreFormat}, Image: 3, At: [4]uint32{x, y}, Data: color}
			require.NoError(t, r.Surface(&pixel))
			inside := x < p.width && y < p.height
			require.Equal(t, !inside, pixel.Out)
			bytes, _ := colorFormats[p.code].pack(color, 0xf)
			load := interp.Pixel{Inst: &isa.Inst{Op: isa.SurfLoad}, Image: 3, At: [4]uint32{x * p.bytes(), y}, Data: color}
			require.NoError(t, r.Surface(&load))
			require.Equal(t, !inside, load.Out)
			if inside {
				copy(want[(y*p.width+x)*p.bytes():], bytes[:p.bytes()])
				require.EqualValues(t, bytes[0], load.Data[0]) // a width of 8 bits
			} else {
				require.Zero(t, load.Data)
			}
		}
		require.Equal(t, want, p.load(t, env))
		// With layers, the third coordinate counts in 256 bytes. A linear surface has one layer.
		inst := isa.Inst{Op: isa.SurfAddress}
		inst.Mod[isa.Width], inst.Mod[isa.Dims] = isa.U8, dimsLayers
		layer := rapid.SampledFrom([]uint32{0, 3, 1<<32 - 1}).Draw(t, "layer")
		pixel := interp.Pixel{Inst: &inst, Image: 3, At: [4]uint32{0, 0, layer}}
		require.NoError(t, r.Surface(&pixel))
		require.EqualValues(t, p.va+uint64(layer)*256, uint64(pixel.Data[1])<<32|uint64(pixel.Data[0]))
		if inst.Op = isa.SurfStore; p.va+uint64(layer)*256 > vaMask {
			require.ErrorContains(t, r.Surface(&pixel), "an address of more than 40 bits")
		}
		inst.Op = isa.SurfAddress
		r.surfaces[3] = sm.Surface{Address: p.va, Width: 16, Height: 1, Format: p.code, Linear: true}
		pixel.At[0] = 5
		require.NoError(t, r.Surface(&pixel))
		require.Equal(t, layer != 0, pixel.Out)
		if !pixel.Out {
			require.EqualValues(t, p.va+5, uint64(pixel.Data[1])<<32|uint64(pixel.Data[0]))
		}
		r.surfaces[3].Format = 0xe1
		require.ErrorContains(t, r.Surface(&interp.Pixel{Inst: &isa.Inst{Op: isa.SurfStoreFormat}, Image: 3}), "surfaces of format 0xe1")
		require.Error(t, r.Surface(&interp.Pixel{Inst: &isa.Inst{Op: isa.SurfRed}, Image: 8}))
	})
}

// TestProgramTexture: a program reads the texture that methods bound, and a texture that is not
// bound ends it by name.
func TestProgramTexture(t *testing.T) {
	const text = `
	mov b32 $r2 0x5
	texfetch t lzero all $r0:#:#:# t1d $t3 $s0 $r2 ()
	mov b32 $r2 0x200000
	mov b32 $r3 0x0
	st b32 wb g[$r2d] $r0
	exit`
	var g GR
	m := newTestMemory()
	m.mapRange(programAt, 0x3000)
	m.mapPage(programData)
	env := newEnv(m)
	said := ""
	env.ProgramFault = func(err error) { said = err.Error() }
	g.prepare(t, env, m, text)
	// A buffer of bytes at 0x101000: R8, unsigned integers. It is the second of the pool at 0x102000.
	for i, w := range []uint32{0x1d | 4<<6 | 2<<18, 0x101000, 6<<14 | 1<<18, 0, 8, 0, 0, 0} {
		for b := range uint64(4) {
			m.store(0x102020+uint64(4*i)+b, byte(w>>(8*b)))
		}
	}
	m.store(0x101005, 0xa7)
	launch := func() Outcome {
		return finish(g.Method(env, 0x90c0, 0x368, 0), func() Outcome { return g.Step(env) })
	}
	g.send(t, env, 0x90c0, writes{{0x238, 1<<16 | 1}, {0x1578, 0x102000}, {0x157c, 1}, {0x22c, 1<<9 | 3<<1 | 1}})
	require.Equal(t, Done, launch(), said)
	require.EqualValues(t, 0xa7, m.word(programData))
	g.send(t, env, 0x90c0, writes{{0x22c, 3 << 1}})
	require.Equal(t, Illegal, launch())
	require.Contains(t, said, "texture 3, which is not bound")
	m.store(0x102026, 0x77) // the texture is not mapped
	g.send(t, env, 0x90c0, writes{{0x22c, 1<<9 | 3<<1 | 1}})
	require.Equal(t, Faulted, launch())
	require.EqualValues(t, 0x771005, g.Fault.VA)
}

// TestChannelsTakeTurns: launches of channels that share the engine end as if each were alone, in steps
// one after the other, and what they executed is counted in all.
func TestChannelsTakeTurns(t *testing.T) {
	counted := uint64(0)
	processors := newProcessors(3)
	var envs [2]*Env
	var grs [2]GR
	var out [2]Outcome
	var mems [2]*testMemory
	now := uint64(0)
	for i := range envs {
		mems[i] = newTestMemory()
		mems[i].mapPage(programData)
		envs[i] = newEnv(mems[i])
		envs[i].Processors = processors
		envs[i].Clock = func() uint64 { now++; return now }
		// The second program is another one at the same place.
		text := strings.Replace(storeNumber, "mov b32 $r3 0x0", []string{"mov b32 $r3 0x0", "add b32 $r0 $r0 0x7\nmov b32 $r3 0x0"}[i], 1)
		grs[i].prepare(t, envs[i], mems[i], text)
		envs[i].Ran = func(ran map[*isa.Form]uint64) {
			for f, n := range ran {
				if f.Op == isa.Store {
					counted += n
				}
			}
		}
		out[i] = grs[i].Method(envs[i], 0x90c0, 0x368, 0)
	}
	turns := 0
	for ; out[0] == Busy && out[1] == Busy; turns++ {
		for i, env := range envs {
			env.Begin(now)
			out[i] = grs[i].Step(env)
		}
	}
	for i, env := range envs {
		require.Equal(t, Done, finish(out[i], func() Outcome { env.Begin(now); return grs[i].Step(env) }))
		for n := range uint32(320) {
			require.Equal(t, n+uint32(7*i), mems[i].word(programData+uint64(n)*4))
		}
	}
	require.Greater(t, turns, 2)
	require.EqualValues(t, 2*8*2, counted, "stores of two warps of eight blocks of two launches")
}

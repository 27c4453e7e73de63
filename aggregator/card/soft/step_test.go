package soft_test

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// perAccess is what an access takes that touches a page for the first time.
const perAccess = 5 * time.Microsecond

// virtual is a card's time, as if each access of a channel took perAccess.
type virtual struct {
	now  atomic.Uint64
	each func(channel uint32, t shadowpt.Target, addr uint64, write bool) // called for each, or nil
}

func (v *virtual) config() soft.Config {
	return soft.Config{Clock: v.now.Load, Watch: func(channel uint32, t shadowpt.Target, addr uint64, _ int, write bool) {
		v.now.Add(uint64(perAccess))
		if v.each != nil {
			v.each(channel, t, addr, write)
		}
	}}
}

// rows is a copy of lines with the graphics engine.
func rows(dst, src, pitch, length, lines uint32, launches int) []uint32 {
	w := make([]uint32, launches)
	for i := range w {
		w[i] = 1<<4 | 1<<8
	}
	return cat(incr(2, 0, classM2MF), incr(2, 0x238, 0, dst), incr(2, 0x30c, 0, src), incr(2, 0x314, pitch, pitch, length, lines), nonIncr(2, 0x300, w...))
}

// Whatever channels do, a step ends in time: unmapping memory, moving pages and stopping a
// channel wait for it. What it wrote is reported at its end.
func TestStepsEndInTime(t *testing.T) {
	for _, tc := range []struct {
		name  string
		words []uint32
	}{
		{"short lines", rows(vaRAM, vaData, 0, 2, 8191, 16)},
		{"pages apart", rows(vaRAM, vaData, 0x1000, 2, 250, 500)},
		{"copy engine", cat(incr(4, 0, classCE0), incr(4, 0x30c, 0, vaData, 0, vaRAM, 2, 2, 2, 8191), nonIncr(4, 0x300, repeat(500, 1<<4|1<<8)...))},
		{"upload", cat(rows(vaRAM, vaData, 1, 1, 8000, 0), incr(2, 0x300, 1<<0|1<<4|1<<8), nonIncr(2, 0x304, repeat(2000, 1)...))},
		{"semaphores", repeat(2000, release32(vaRAM, 1)...)},
		{"reports", cat(incr(1, 0, 0x9097), repeat(2000, incr(1, 0x1b00, 0, vaRAM, 1, 0)...))},
	} {
		for _, channels := range []int{1, 3} {
			t.Run(tc.name, func(t *testing.T) {
				var v virtual
				var accesses [gf100.Channels]uint64 // of a channel's step
				var most atomic.Uint64
				v.each = func(channel uint32, _ shadowpt.Target, _ uint64, _ bool) { accesses[channel]++ }
				r, cs := newChannelsOf(t, channels, v.config())
				r.host.wrote = func(off, _ uint64) { // at the end of a step, as often as it wrote
					channel := off>>20 + 1
					most.Store(max(most.Load(), accesses[channel]))
					accesses[channel] = 0
				}
				for i, c := range cs {
					c.space.mapRAM(vaRAM, uint64(i)<<20, 1<<20)
					c.submit(cat(tc.words, release(0, 1))...)
				}
				for _, c := range cs {
					c.waitSemaphore(0, 1)
				}
				require.Greater(t, most.Load(), uint64(10))
				require.Less(t, most.Load()*uint64(perAccess), uint64(5*time.Millisecond))
				if channels == 1 {
					require.Less(t, time.Duration(r.card.Stats().LongestStep.Load()), 5*time.Millisecond)
				}
			})
		}
	}
}

// A step ends in time also if the memory that a copy touches has holes, which are slow to fill.
func TestPopulatingEndsInTime(t *testing.T) {
	const perPage, size = 10 * time.Microsecond, 2 << 20
	for _, tc := range []struct {
		name     string
		dst, src uint32
	}{{"source", vaData, vaRAM}, {"destination", vaRAM, vaData}, {"both", vaRAM + size, vaRAM}} {
		t.Run(tc.name, func(t *testing.T) {
			var v virtual
			var pages, most atomic.Uint64
			r, c := newChannelRig(t, v.config())
			r.card.UnmapDMA(0, ramSize)
			require.NoError(t, r.card.MapDMA(0, card.Mapping{Mem: r.host.ram, Write: true, Populate: func(_, n uint64) bool {
				n = (n + shadowpt.SmallPage - 1) / shadowpt.SmallPage
				v.now.Add(n * uint64(perPage))
				pages.Add(n)
				most.Store(max(most.Load(), n))
				return true
			}}))
			c.space.mapVRAM(vaData+1<<20, c.data, 1<<20) // the same memory again
			c.submit(cat(incr(2, 0, classM2MF), copyM2MF(tc.dst, tc.src, size), release(0, 1))...)
			c.waitSemaphore(0, 1)
			require.GreaterOrEqual(t, pages.Load(), uint64(size/shadowpt.SmallPage))
			require.LessOrEqual(t, most.Load(), uint64(64), "pages in one call")
			require.Less(t, time.Duration(r.card.Stats().LongestStep.Load()), 3*time.Millisecond)
		})
	}
}

func repeat(n int, words ...uint32) (out []uint32) {
	for range n {
		out = append(out, words...)
	}
	return out
}

// gate holds accesses of one channel.
type gate struct {
	channel uint32
	target  shadowpt.Target
	once    sync.Once
	in, out chan struct{}
}

func newGate(channel uint32, t shadowpt.Target) *gate {
	return &gate{channel: channel, target: t, in: make(chan struct{}), out: make(chan struct{})}
}

func (g *gate) pass(channel uint32, t shadowpt.Target, _ uint64, _ bool) {
	if channel == g.channel && t == g.target {
		g.once.Do(func() {
			close(g.in)
			<-g.out
		})
	}
}

// A step that hangs in its owner's memory delays nothing of another owner.
func TestOwnersWaitForTheirOwnSteps(t *testing.T) {
	const stuck, other = 0, 1 // channels
	g := newGate(1, shadowpt.SystemNonCoherent)
	v := virtual{each: g.pass}
	r, cs := newChannelsOf(t, 3, v.config())
	mem := newFakeHost(t).ram
	for _, c := range cs[1:] { // the second owner has two channels, and memory of its own
		c.ramfc(func(b []byte) { gf100.InstOwner.Put(b, 1) })
		c.bind()
		c.space.mapRAM(vaHole, 1<<32, 0x1000)
	}
	require.NoError(t, r.card.MapDMA(1<<32, card.Mapping{Mem: mem, Write: true, Owner: 1}))
	cs[stuck].submit(rows(vaRAM, vaData, 0, 64, 1, 1)...)
	<-g.in
	letGo := sync.OnceFunc(func() { close(g.out) })
	defer letGo()

	done := func(f func()) <-chan struct{} {
		ch := make(chan struct{})
		go func() { defer close(ch); f() }()
		return ch
	}
	soon := func(what string, f func()) {
		t.Helper()
		select {
		case <-done(f):
		case <-time.After(patience):
			require.FailNow(t, "it waits for the other owner's step: "+what)
		}
	}
	invalidate := func(c *testChannel) (over bool) {
		r.wr(0x100cb8, uint32(c.space.dir>>12)<<4)
		r.wr(0x100cbc, 1<<31|1)
		return r.rd(0x100c80)&(1<<15) != 0
	}

	c := cs[other]
	c.alive()
	c.submit(cat(incr(0, 0x28, 0, 9<<27), release32(vaHole, 7))...)
	r.eventually("its own invalidate, and its own memory", func() bool { return mem[0] == 7 })
	// It wants the engine that serves the stuck one. It waits outside of steps.
	c.submit(cat(rows(vaData, vaHole, 0, 64, 1, 1), release(0, 1))...)
	contends := func() bool { return r.card.Contended() == 1 }
	r.eventually("it waits", contends)
	c.unbind()
	require.Zero(t, r.card.Contended(), "an unbound channel waits for nothing")
	c.bind()
	r.eventually("it waits again", contends)
	require.True(t, invalidate(c))
	require.False(t, invalidate(cs[stuck]), "its own step uses the directory")
	require.True(t, invalidate(c), "the other owner's invalidate goes on")
	soon("traps", func() { // not even for the owner's own
		r.wr(0x400500, 0x00010001)
		r.wr(0x2a30, 0)
		r.rd(0x2640)
	})
	soon("quiesce and relocate", func() {
		r.card.QuiesceChannels([]uint32{uint32(c.id)}, func() {
			_, err := r.card.Relocate(card.Relocation{Addr: c.data, Size: 0x1000})
			require.NoError(t, err)
		})
	})
	c.disable()
	c.kick()
	require.Zero(t, r.card.Contended())
	r.wr(0x2634, cs[stuck].id)
	require.NotZero(t, r.rd(0x2634)&(1<<20), "the stuck one has not left")
	c.enable()
	c.disable()
	c.kick()
	r.runlist(1, 3) // without the other's first channel
	c.unbind()
	r.commit(3) // without the stuck one
	require.NotZero(t, r.rd(0x227c)&(1<<20), "it has not left")
	r.runlist(3)
	cs[2].alive()
	soon("unmap", func() { r.card.UnmapDMA(1<<32, 1) })

	own := done(func() { r.card.UnmapDMA(0, 1) })
	select {
	case <-own:
		require.Fail(t, "its own memory was unmapped during the step")
	case <-time.After(10 * time.Millisecond):
	}
	letGo()
	<-own
}

// A channel reaches its owner's memory only.
func TestMemoryHasAnOwner(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	require.NoError(t, r.card.MapDMA(1<<32, card.Mapping{Mem: make([]byte, 0x1000), Write: true, Owner: 1}))
	c.space.mapRAM(vaHole, 1<<32, 0x1000)
	c.submit(release32(vaHole, 1)...)
	r.eventually("fault", func() bool { return r.rd(0x259c) == 1<<slotHost })
}

// endless is a program that reads words for ever, of more pages than a step looks up: virtual time passes
// with look-ups.
const endless = `
	mov b32 $r1 0x0
	mov b32 $r3 0x0
again:
	add b32 $r1 $r1 0x1000
	and b32 $r1 $r1 0xfffff
	add b32 $r2 $r1 0x400000
	ld b32 $r4 ca g[$r2d]
	bra again`

// launch places a program behind a channel's pushbuffer, and returns the words that launch it in
// blocks of 32 threads.
func (c *testChannel) launch(program string, blocks uint32) []uint32 {
	const at = pushSize - 0x200
	words, err := isa.Assemble(program)
	require.NoError(c.r.t, err)
	for i, w := range words {
		c.r.vramWrite64(c.push+at+uint64(i)*8, w)
	}
	return cat(incr(1, 0, 0x90c0), incr(1, 0x1608, 0, vaPush+at), incr(1, 0x238, 1<<16|blocks, 1), incr(1, 0x3ac, 1<<16|32, 1),
		incr(1, 0x250, 32), incr(1, 0x2c0, 16), incr(1, 0x368, 0))
}

// A request that does not end delays those of others by a slice.
func TestShortRequestBesideLongOnes(t *testing.T) {
	for name, request := range map[string]func(*testChannel) []uint32{
		"copies":   func(*testChannel) []uint32 { return rows(vaRAM, vaData, 0, 64, 1<<30, 1) },
		"programs": func(c *testChannel) []uint32 { return c.launch(endless, 65535) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, long := range []int{1, 2, 6} {
				g := newGate(1, shadowpt.SystemNonCoherent)
				var began, ended, short atomic.Uint64
				v := &virtual{}
				v.each = func(channel uint32, t shadowpt.Target, addr uint64, write bool) {
					g.pass(channel, t, addr, write)
					if t == shadowpt.SystemNonCoherent && channel == uint32(long+1) && short.Swap(1) == 0 {
						ended.Store(v.now.Load())
					}
				}
				r, cs := newChannelsOf(t, long+1, v.config())
				const slice = uint64(2 * time.Millisecond)
				for _, c := range cs[:long] {
					c.submit(request(c)...)
				}
				<-g.in
				// All others wait for the engine; the short one comes last.
				r.eventually("all wait", func() bool { return r.card.Contended() == long-1 })
				last := cs[long]
				last.submit(cat(rows(vaRAM+0x1000, vaData, 0, 64, 10, 1), release(0, 1))...)
				r.eventually("it waits", func() bool { return r.card.Contended() == long })
				began.Store(v.now.Load())
				close(g.out)
				last.waitSemaphore(0, 1)
				// A slice ends with the step that passes its end.
				require.LessOrEqual(t, ended.Load()-began.Load(), uint64(long)*(slice+uint64(2*time.Millisecond)), "with %d", long)
				u := r.card.Use(uint32(last.id))
				require.Less(t, u.Busy[gf100.EngineGR], time.Millisecond, "the others' time is not its own")
				for _, c := range cs[:long] {
					c.disable()
					c.kick()
					u := r.card.Use(uint32(c.id))
					require.True(t, u.Underway && !u.Running && u.Ended == 0)
					require.Positive(t, u.Busy[gf100.EngineGR])
				}
			}
		})
	}
}

// TestProgramMemoryMoves: a program that stores to a page for ever stores where it lies after each
// invalidate. Of the host's memory, it reports what each step wrote, and it finds none once that is
// unmapped.
func TestProgramMemoryMoves(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	var reports atomic.Uint64
	r.host.wrote = func(uint64, uint64) { reports.Add(1) }
	ram := func() uint32 { return r.host.load(0) }
	vram := func() uint32 { return r.vram32(c.data) }
	goesOn := func(what string, word func() uint32) {
		t.Helper()
		from := word()
		r.eventually(what, func() bool { return word() != from })
	}
	c.space.mapRAM(vaHole, 0, 0x1000)
	c.submit(c.launch("mov b32 $r2 0x3000000\nmov b32 $r3 0x0\nmov b32 $r4 0x1\nagain:\nred add u32 g[$r2d] $r4\nbra again", 1)...)
	goesOn("it stores", ram)
	from := reports.Load()
	r.eventually("each step reports", func() bool { return reports.Load() > from+5 })

	c.space.mapVRAM(vaHole, c.data, 0x1000)
	r.flush()
	old := ram()
	goesOn("it stores to VRAM", vram)
	require.Equal(t, old, ram())
	c.space.mapRAM(vaHole, 0, 0x1000)
	r.flush()
	old = vram()
	goesOn("it stores to the host's memory", ram)
	require.Equal(t, old, vram())

	r.card.UnmapDMA(0, ramSize)
	old = ram()
	r.eventually("fault", func() bool { return r.rd(0x259c) == 1 })
	require.Equal(t, old, ram())
}

// patient is a program that waits for a word of memory, and counts its threads before and after.
const patient = `
	mov b32 $r2 0x400000
	mov b32 $r3 0x0
	mov b32 $r4 0x1
	red add u32 g[$r2d+0x4] $r4
again:
	ld b32 $r5 cg g[$r2d]
	set $p0 0x1 eq u32 $r5 0x0
	$p0 bra again
	red add u32 g[$r2d+0x8] $r4
	exit`

// A program goes on where it was when its channel is bound again.
func TestRebindInMidProgram(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.submit(cat(c.launch(patient, 1), release(0, 1))...)
	r.eventually("it has begun", func() bool { return r.host.load(4) == 32 })
	c.disable()
	c.kick()
	require.True(t, r.card.Use(1).Underway)
	c.unbind()
	c.bind()
	binary.LittleEndian.PutUint32(r.host.ram, 1)
	c.enable()
	c.waitSemaphore(0, 1)
	require.Equal(t, []uint32{32, 32}, []uint32{r.host.load(4), r.host.load(8)})
}

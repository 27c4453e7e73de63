package soft_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Virtual addresses of a Hopper channel, beyond the 40 bits of a ring entry.
const (
	hopperBase = 0x123_45_4000_0000
	hRing      = hopperBase
	hPush      = hopperBase + 0x10000
	hSem       = hopperBase + 0x20000
	hData      = hopperBase + 0x40000 // 16 pages
	hRAM       = hopperBase + 0x80000 // a page of the host's memory
	hSparse    = hopperBase + 0x90000 // two pages without memory
	hDriver    = hopperBase + 0xa0000 // a page that is only for drivers
	hHole      = hopperBase + 0xb0000
)

// hopperChannel is a c86f channel. It drives the card as the face of a GH100 does.
type hopperChannel struct {
	card.DescribedChannel
	id                            uint32
	r                             *rig
	space                         shadowpt.Space
	ring, push, sem, data, driver uint64
	table, userd                  uint64
	put                           uint32
	at                            uint64
	mu                            sync.Mutex
	completed                     card.EngineSet
	faults                        []card.Fault
}

func (c *hopperChannel) Completed(e card.EngineSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completed |= e
}

func (c *hopperChannel) Fault(f card.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
}

func (c *hopperChannel) fault() (f card.Fault) {
	c.r.t.Helper()
	c.r.eventually("a fault", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.faults) > 0 {
			f = c.faults[0]
		}
		return len(c.faults) > 0
	})
	return f
}

// mapPage writes the entry of a small page of the 2 MiB at hopperBase.
func (c *hopperChannel) mapPage(va, addr, bits uint64) {
	c.r.vramWrite64(c.table+va>>12&0x1ff*8, addr|bits)
}

func (r *rig) openHopper(change func(*card.Description)) *hopperChannel {
	c := &hopperChannel{r: r}
	var tables [6]uint64 // five directories and a table, of which the last two are not of a page each
	for i := range tables {
		tables[i] = r.alloc(0x1000)
	}
	va := uint64(hopperBase)
	for i, index := range []uint64{va >> 56 & 1, va >> 47 & 0x1ff, va >> 38 & 0x1ff, va >> 29 & 0x1ff, va>>21&0xff*2 + 1} {
		r.vramWrite64(tables[i]+index*8, tables[i+1]|1<<1)
	}
	c.table = tables[5]
	c.ring, c.push, c.sem, c.driver, c.userd = r.alloc(0x1000), r.alloc(0x8000), r.alloc(0x1000), r.alloc(0x1000), r.alloc(0x1000)
	c.data = r.alloc(0x10000)
	c.mapPage(hRing, c.ring, 1)
	c.mapPage(hSem, c.sem, 1)
	c.mapPage(hRAM, 0x1000, 1|3<<1)
	c.mapPage(hDriver, c.driver, 1|2<<3)
	for i := range uint64(2) {
		c.mapPage(hSparse+i<<12, 0, 1<<3)
	}
	for i := range uint64(8) {
		c.mapPage(hPush+i<<12, c.push+i<<12, 1)
	}
	for i := range uint64(16) {
		c.mapPage(hData+i<<12, c.data+i<<12, 1)
	}
	c.space = shadowpt.Space{Dir: tables[0], Limit: ^uint64(0)}
	d := card.Description{Class: 0xc86f, Space: c.space, Ring: card.Ring{Base: hRing, Log2: ringLog2}, USERD: c.userd, Engine: card.Graphics, Events: c}
	if change != nil {
		change(&d)
	}
	for d.Number = gf100.Channels - 1; c.DescribedChannel == nil; d.Number-- { // the last free one
		ch, err := r.card.OpenChannel(d)
		if err == nil {
			c.DescribedChannel, c.id = ch, d.Number
		} else {
			require.ErrorIs(r.t, err, card.ErrChannels)
		}
	}
	r.t.Cleanup(c.Close)
	c.Enable(true)
	c.control(4, hPush>>40<<8) // the segments lie beyond 40 bits
	for subch, class := range []uint32{0xcb97, 0xcbc0, 0xa140, 0x902d, 0xc8b5} {
		if d.Engine == card.Graphics || class == 0xc8b5 {
			c.words(incr(uint32(subch), 0, class))
		}
	}
	return c
}

func (c *hopperChannel) entry(q uint64) {
	c.r.vramWrite64(c.ring+uint64(c.put)*8, q)
	c.put = (c.put + 1) & (1<<ringLog2 - 1)
}

func (c *hopperChannel) control(opcode, operand uint64) { c.entry(opcode<<32 | operand) }

func (c *hopperChannel) words(w []uint32) {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	c.r.vramWrite(c.push+c.at, b)
	va := hPush + c.at
	c.entry(va&(1<<40-1) | uint64(len(w))<<42)
	c.at += uint64(len(b))
}

func (c *hopperChannel) submit(w ...[]uint32) {
	c.words(cat(w...))
	c.Doorbell(c.put)
}

// done waits until everything submitted has been executed.
func (c *hopperChannel) done() {
	c.r.t.Helper()
	c.r.eventually("ring drained", func() bool { return c.r.vram32(c.userd+gf100.USERDGPGet) == c.put })
}

func (c *hopperChannel) get64(off uint64) uint64 {
	return binary.LittleEndian.Uint64(c.r.vramRead(c.sem+off, 8))
}

func sem(va, payload uint64, execute uint32) []uint32 {
	return incr(0, 0x5c, uint32(va), uint32(va>>32), uint32(payload), uint32(payload>>32), execute)
}

// copyC8B5 copies n bytes of one line, between addresses.
func copyC8B5(dst, src uint64, n, launch uint32) []uint32 {
	return cat(incr(4, 0x400, uint32(src>>32), uint32(src), uint32(dst>>32), uint32(dst), n, n, n, 1), incr(4, 0x300, launch|3<<7))
}

func newHopper(t *testing.T) (*rig, *hopperChannel) {
	r := newRig(t, soft.Config{Clock: func() uint64 { return 0x1122334455667788 }})
	return r, r.openHopper(nil)
}

// TestC86FRelease: payloads of both sizes, the time, and reductions in order.
func TestC86FRelease(t *testing.T) {
	_, c := newHopper(t)
	c.r.vramWrite64(c.sem, ^uint64(0))
	c.r.vramWrite64(c.sem+32, ^uint64(0))
	c.submit(sem(hSem, 0x1_00000007, 1), sem(hSem+16, 0x1_00000007, 1|1<<24), sem(hSem+32, 5, 1|1<<25|1<<20), sem(hSem+48, 0xabc_00000000, 1|3<<24),
		sem(hSem+64, 10, 1), sem(hSem+64, 5, 6|5<<27), sem(hSem+64, 0xfffffffe, 6), sem(hSem+72, 1, 1|1<<24), sem(hSem+72, 7<<40, 6|4<<27|1<<24),
		incr(0, 0x50, 77), incr(0, 0x78, 1), incr(0, 0x34, 5<<27), incr(0, 0x34, 16<<27))
	c.done()
	require.Equal(t, uint64(0xffffffff_00000007), c.get64(0))
	require.EqualValues(t, 0x1_00000007, c.get64(16))
	require.Equal(t, []uint64{5, 0x1122334455667788, 0xabc_00000000, 0x1122334455667788}, []uint64{c.get64(32), c.get64(40), c.get64(48), c.get64(56)})
	require.EqualValues(t, 0xfffffffe, c.get64(64), "10 + 5, then the least by sign")
	require.EqualValues(t, 7<<40|1, c.get64(72))
	require.EqualValues(t, 77, c.r.vram32(c.userd+gf100.USERDRef))
}

// TestC86FAcquire holds each condition against its definition: the channel goes on exactly if it holds.
func TestC86FAcquire(t *testing.T) {
	values := []uint64{0, 1, 5, 6, 0x7fffffff, 0x80000005, 0xffffffff, 1 << 32, 1 << 63, ^uint64(0)}
	ops := map[uint32]func(v, p uint64, wide bool) bool{
		0: func(v, p uint64, _ bool) bool { return v == p },
		2: func(v, p uint64, _ bool) bool { return v >= p },
		3: func(v, p uint64, wide bool) bool {
			if wide {
				return (v-p)>>63 == 0
			}
			return (v-p)>>31&1 == 0
		},
		4: func(v, p uint64, _ bool) bool { return v&p != 0 },
		5: func(v, p uint64, wide bool) bool {
			if wide {
				return v|p != ^uint64(0)
			}
			return v|p != 0xffffffff
		},
	}
	r, _ := newHopper(t)
	var waiting []*hopperChannel
	for op, holds := range ops {
		for _, wide := range []bool{false, true} {
			c := r.openHopper(nil)
			for range 8 { // with a new channel after one that waits
				v, p := values[rand.IntN(len(values))], values[rand.IntN(len(values))]
				execute := op | 1<<12
				if !wide {
					v, p = v&0xffffffff, p&0xffffffff
				} else {
					execute |= 1 << 24
				}
				r.vramWrite64(c.sem, v)
				c.submit(sem(hSem, p, execute), sem(hSem+64, 1, 1))
				released := func() bool { return r.vram32(c.sem+64) == 1 }
				if holds(v, p, wide) {
					r.eventually("acquired", released)
					r.vramWrite32(c.sem+64, 0)
					continue
				}
				r.eventually("it waits", func() bool { return r.card.Use(c.id).Barred })
				require.False(t, released(), "operation %d of %x, %x, wide %v", op, v, p, wide)
				waiting = append(waiting, c)
				c = r.openHopper(nil)
			}
			c.Close()
		}
	}
	require.NotEmpty(t, waiting)
	require.NoError(t, r.card.Check())
	for _, c := range waiting {
		c.Close()
	}
}

// TestC86FAcquireWakes: a wait ends by another channel's release.
func TestC86FAcquireWakes(t *testing.T) {
	r, c := newHopper(t)
	other := r.openHopper(nil)
	other.mapPage(hSem, c.sem, 1)
	r.card.StopRetries()
	c.submit(sem(hSem, 9, 3|1<<12), sem(hSem+16, 1, 1))
	r.eventually("it waits", func() bool { return r.card.Use(c.id).Barred })
	other.submit(sem(hSem, 10, 1))
	c.done()
	require.EqualValues(t, 1, r.vram32(c.sem+16))
}

// TestHopperCopies: between VRAM, the host's memory and pages without memory; a fill by a constant;
// inline data; interrupts of the engine that did it.
func TestHopperCopies(t *testing.T) {
	r, c := newHopper(t)
	want := make([]byte, 3001)
	for i := range want {
		want[i] = byte(i*7 + 1)
	}
	r.vramWrite(c.data+1, want)
	c.submit(copyC8B5(hData+0x2003, hData+1, 3001, 2), copyC8B5(hRAM, hData+1, 3001, 2|2<<5), sem(hSem, 1, 1|1<<20))
	c.done()
	require.Equal(t, want, r.vramRead(c.data+0x2003, 3001))
	require.Equal(t, want, r.host.ram[0x1000:0x1000+3001])
	r.eventually("its interrupt", func() bool { return c.events() == 1<<card.Copy0 })
	first := bytes.Repeat([]byte{0xee}, 0x2000) // where an entry of zeros would lead to
	r.vramWrite(0, first)
	c.submit(copyC8B5(hSparse+5, hData+1, 3001, 2), copyC8B5(hData+0x2003, hSparse+0xff0, 3001, 2),
		incr(4, 0x700, 0x11223344, 0, 4|3<<16), incr(4, 0x408, uint32((hData+0x8000)>>32), uint32((hData+0x8000)&0xffffffff)), incr(4, 0x418, 100), incr(4, 0x300, 2|3<<7|1<<10),
		incr(2, 0x180, 6, 1, uint32((hData+0x9001)>>32), uint32((hData+0x9001)&0xffffffff)), incr(2, 0x1b0, 1), nonIncr(2, 0x1b4, 0x64636261, 0x6665), incr(0, 0x20, 0))
	c.done()
	require.Equal(t, make([]byte, 3001), r.vramRead(c.data+0x2003, 3001), "a page without memory reads as zeros")
	require.Equal(t, first, r.vramRead(0, 0x2000))
	require.EqualValues(t, 0x11223344, r.vram32(c.data+0x8000+396))
	require.Zero(t, r.vram32(c.data+0x8000+400))
	require.Equal(t, "\x00abcdef\x00", string(r.vramRead(c.data+0x9000, 8)))
	r.eventually("the interrupt of its runlist", func() bool { return c.events() == 1<<card.Graphics|1<<card.Copy0 })
	require.Empty(t, c.faults)
}

func (c *hopperChannel) events() card.EngineSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.completed
}

// TestHopperStops: what ends a channel, with the reason. The channel does nothing after it; others go on.
func TestHopperStops(t *testing.T) {
	r, other := newHopper(t)
	for name, c := range map[string]struct {
		words []uint32
		want  card.Fault
	}{
		"draw":           {incr(0, 0xd78, 3), card.Fault{Kind: card.BadMethod, Engine: card.Graphics, Class: 0xcb97, Method: 0xd78, Data: 3, Text: "class cb97: DRAW_VERTEX_ARRAY is not carried out by the software card (data 00000003)"}},
		"launch":         {incr(1, 0x2bc, 2), card.Fault{Kind: card.BadMethod, Engine: card.Graphics, Subchannel: 1, Class: 0xcbc0, Method: 0x2bc, Data: 2, Text: "class cbc0: SEND_SIGNALING_PCAS_B is not carried out by the software card (data 00000002)"}},
		"physical copy":  {copyC8B5(hData, hData, 16, 2|1<<13), card.Fault{Kind: card.BadData, Engine: card.Copy0, Subchannel: 4, Class: 0xc8b5, Method: 0x300, Data: 0x2182, Text: "class c8b5: LAUNCH_DMA has illegal data (data 00002182)"}},
		"class":          {incr(5, 0, 0x9097), card.Fault{Kind: card.BadClass, Subchannel: 5, Class: 0x9097, Data: 0x9097, Text: "class 9097: METHOD"}},
		"copy to a hole": {copyC8B5(hHole+8, hData, 16, 2), card.Fault{Kind: card.Translation, Engine: card.Copy0, VA: hHole + 8, Write: true, Reason: shadowpt.PageNotPresent}},
		"driver's page":  {copyC8B5(hData, hDriver, 16, 2), card.Fault{Kind: card.Translation, Engine: card.Copy0, VA: hDriver, Reason: shadowpt.PageSystemOnly}},
		"release":        {sem(hHole, 1, 1), card.Fault{Kind: card.Translation, Engine: card.NoEngine, VA: hHole, Write: true, Reason: shadowpt.PageNotPresent}},
		"unaligned":      {sem(hSem+4, 1, 1|1<<24), card.Fault{Kind: card.BadSemaphore, Engine: card.NoEngine, Method: 0x6c, Data: 1 | 1<<24}},
		"unaligned time": {sem(hSem+8, 1, 1|1<<25), card.Fault{Kind: card.BadSemaphore, Engine: card.NoEngine, Method: 0x6c, Data: 1 | 1<<25}},
		"reduction":      {sem(hSem, 1, 6|6<<27), card.Fault{Kind: card.BadSemaphore, Engine: card.NoEngine, Method: 0x6c, Data: 6 | 6<<27}},
		"host method":    {incr(0, 0x10, 1), card.Fault{Kind: card.NoMethod, Engine: card.NoEngine, Method: 0x10, Data: 1}},
		"other space":    {incr(0, 0x28, 0, 0, uint32(other.space.Dir), 9<<27), card.Fault{Kind: card.NoMethod, Engine: card.NoEngine, Method: 0x34, Data: 9 << 27}},
		"every space":    {incr(0, 0x28, 0, 0, 1, 9<<27), card.Fault{Kind: card.NoMethod, Engine: card.NoEngine, Method: 0x34, Data: 9 << 27}},
		"no class":       {incr(6, 0x100, 1), card.Fault{Kind: card.NoMethod, Engine: card.NoEngine, Subchannel: 6, Method: 0x100, Data: 1}},
		"header":         {[]uint32{6 << 29}, card.Fault{Kind: card.BadHeader, Engine: card.NoEngine, Data: 6 << 29}},
	} {
		ch := r.openHopper(nil)
		ch.submit(c.words, sem(hSem+16, 1, 1))
		got := ch.fault()
		if name == "class" {
			got.Text = c.want.Text
		}
		require.Equal(t, c.want, got, name)
		require.True(t, r.card.Use(ch.id).Barred)
		require.Zero(t, r.vram32(ch.sem+16), name)
		ch.Close()
		require.Len(t, ch.faults, 1)
	}
	other.submit(sem(hSem, 3, 1))
	other.done()
	require.EqualValues(t, 3, r.vram32(other.sem))
	require.Zero(t, r.rd(0x2100)&^0x80000000, "nothing reached the registers")
}

// TestHopperSpaces: a channel's own invalidate makes changed entries valid; a copy channel has no other
// classes, and announces as its engine.
func TestHopperSpaces(t *testing.T) {
	r, c := newHopper(t)
	old := c.sem
	moved := r.alloc(0x1000)
	c.submit(sem(hSem, 1, 1))
	c.done()
	c.mapPage(hSem, moved, 1)
	c.submit(incr(0, 0x28, 0, 0, uint32(c.space.Dir), uint32(c.space.Dir>>32)|9<<27), sem(hSem, 2, 1))
	c.done()
	require.Equal(t, []uint32{1, 2}, []uint32{r.vram32(old), r.vram32(moved)})
	p := r.openHopper(func(d *card.Description) { d.Engine = card.Copy0 + 1 })
	p.submit(incr(0, 0x20, 0))
	r.eventually("the second copy engine's interrupt", func() bool { return p.events() == 1<<(card.Copy0+1) })
	p.submit(incr(0, 0, 0xcb97))
	require.Equal(t, card.BadClass, p.fault().Kind)
}

// TestHopperSubroutine: a segment of level 1 and its return are seen in USERD.
func TestHopperSubroutine(t *testing.T) {
	r, c := newHopper(t)
	c.submit(sem(hSem, 1, 1))
	c.done()
	main := uint32(hPush&0xffffffff) + uint32(c.at)
	c.words(sem(hSem, 2, 1))
	c.r.vramWrite32(c.ring+uint64(c.put-1)*8+4, r.vram32(c.ring+uint64(c.put-1)*8+4)|1<<9)
	c.Doorbell(c.put)
	c.done()
	require.Equal(t, main, r.vram32(c.userd+gf100.USERDTopLevelGet))
	require.Equal(t, main+24, r.vram32(c.userd+gf100.USERDGet))
	require.EqualValues(t, 2, r.vram32(c.sem))
}

// TestHopperAlone: registers do not reach opened channels, nor opened channels those of the registers.
func TestHopperAlone(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	h := r.openHopper(nil)
	r.wr(0x3000+h.id*8, 0)
	r.wr(0x3004+h.id*8, 0)
	r.wr(0x2628, 0)
	r.runlist(1)
	h.submit(incr(4, 0x100, 0), sem(hSem, 5, 1)) // the copy class needs no SET_OBJECT
	h.done()
	r.wr(0x2628, 1)
	c.alive()
	for _, d := range []card.Description{{}, {Class: 0xc86f, Engine: 3, Events: h}, {Class: 0xc86f, Owner: gf100.Owners, Events: h}, {Class: 0xc86f}} {
		_, err := r.card.OpenChannel(d)
		require.Error(t, err)
	}
	require.NoError(t, r.card.Reset())
	h.submit(sem(hSem, 6, 1))
	h.Close()
	require.Zero(t, r.vram32(h.sem))
}

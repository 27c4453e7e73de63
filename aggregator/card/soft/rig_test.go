package soft_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// rig drives a card as a driver does: registers, PRAMIN, page tables, rings and
// doorbells, and nothing else.
type rig struct {
	t    *testing.T
	card *soft.Card
	host *fakeHost
	next uint64 // VRAM allocator, bottom up
}

// fakeHost is guest memory at bus address 0, and a record of interrupts.
type fakeHost struct {
	mu   sync.RWMutex
	ram  []byte
	line struct {
		sync.Mutex
		level bool
		edges int
	}
}

func (h *fakeHost) Acquire() { h.mu.RLock() }
func (h *fakeHost) Release() { h.mu.RUnlock() }

func (h *fakeHost) Slice(addr uint64, n int, _ bool) []byte {
	if addr+uint64(n) > uint64(len(h.ram)) {
		return nil
	}
	return h.ram[addr : addr+uint64(n)]
}

func (h *fakeHost) Interrupt(l card.Line) {
	h.line.Lock()
	defer h.line.Unlock()
	h.line.level = l.Level
	if l.Edge {
		h.line.edges++
	}
}

func (h *fakeHost) edges() int {
	h.line.Lock()
	defer h.line.Unlock()
	return h.line.edges
}

const userdBAR1 = 0 // where the rig maps the poll area in BAR1

func newRig(t *testing.T, cfg soft.Config) *rig {
	t.Helper()
	if cfg.VRAM == 0 {
		cfg.VRAM = 64 << 20
	}
	c, err := soft.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	r := &rig{t: t, card: c, host: &fakeHost{ram: make([]byte, 1<<20)}, next: 1 << 20}
	c.AttachHost(r.host)
	r.wr(0x2100, ^uint32(0))
	r.wr(0x2140, 0x7fffffff)
	r.wr(0x2140, ^uint32(0))
	r.wr(0x2628, 1)
	for i := range uint32(gf100.PBDMAs) {
		r.wr(0x4010c+i*0x2000, 0xfffffeff)
	}
	r.wr(0x140, 1)
	r.wr(0x2200, 1)
	r.wr(0x2254, 0x10000000|userdBAR1>>12)
	return r
}

func (r *rig) rd(off uint32) uint32 {
	var b [4]byte
	r.card.ReadBAR(soft.BAR0, uint64(off), b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (r *rig) wr(off, v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	r.card.WriteBAR(soft.BAR0, uint64(off), b[:])
}

// vram reads and writes the card's memory through PRAMIN.
func (r *rig) vramWrite(addr uint64, p []byte) {
	for len(p) > 0 {
		r.wr(0x1700, uint32(addr>>16))
		n := min(len(p), int(0x100000-addr&0xffff))
		r.card.WriteBAR(soft.BAR0, 0x700000+addr&0xffff, p[:n])
		addr += uint64(n)
		p = p[n:]
	}
}

func (r *rig) vramRead(addr uint64, n int) []byte {
	p := make([]byte, n)
	for at := 0; at < n; {
		r.wr(0x1700, uint32(addr>>16))
		m := min(n-at, int(0x100000-addr&0xffff))
		r.card.ReadBAR(soft.BAR0, 0x700000+addr&0xffff, p[at:at+m])
		addr += uint64(m)
		at += m
	}
	return p
}

func (r *rig) vram32(addr uint64) uint32 { return binary.LittleEndian.Uint32(r.vramRead(addr, 4)) }

func (r *rig) vramWrite32(addr uint64, v uint32) {
	r.vramWrite(addr, binary.LittleEndian.AppendUint32(nil, v))
}

func (r *rig) vramWrite64(addr, v uint64) {
	r.vramWrite(addr, binary.LittleEndian.AppendUint64(nil, v))
}

// alloc returns n bytes of VRAM, aligned to 4 KiB, zero.
func (r *rig) alloc(n uint64) uint64 {
	a := r.next
	r.next += (n + 0xfff) &^ 0xfff
	return a
}

// space is an address space under construction.
type space struct {
	r   *rig
	dir uint64
	pts map[uint64]uint64 // small tables by directory index
}

func (r *rig) newSpace() *space {
	return &space{r: r, dir: r.alloc(shadowpt.DirSize), pts: map[uint64]uint64{}}
}

// mapPage enters one small page.
func (s *space) mapPage(va uint64, pte shadowpt.PTE) {
	di := va / shadowpt.DirSpan
	pt, ok := s.pts[di]
	if !ok {
		pt = s.r.alloc(shadowpt.SmallEntries * 8)
		s.pts[di] = pt
		s.r.vramWrite64(s.dir+di*8, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: pt}}.Encode())
	}
	pte.Valid = true
	s.r.vramWrite64(pt+va%shadowpt.DirSpan/shadowpt.SmallPage*8, pte.Encode())
}

// mapVRAM maps n bytes of VRAM at va.
func (s *space) mapVRAM(va, addr, n uint64) {
	for off := uint64(0); off < n; off += shadowpt.SmallPage {
		s.mapPage(va+off, shadowpt.PTE{Addr: addr + off})
	}
}

func (s *space) mapRAM(va, addr, n uint64) {
	for off := uint64(0); off < n; off += shadowpt.SmallPage {
		s.mapPage(va+off, shadowpt.PTE{Addr: addr + off, Target: shadowpt.SystemNonCoherent})
	}
}

func (r *rig) instance(s *space, limit uint64) uint64 {
	inst := r.alloc(gf100.InstanceSize)
	b := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(b, uint32(s.dir>>12))
	gf100.InstPDBHi.Put(b, uint32(s.dir>>32))
	gf100.InstLimitLo.Put(b, uint32(limit>>12))
	gf100.InstLimitHi.Put(b, uint32(limit>>32))
	r.vramWrite(inst, b)
	return inst
}

// bar1 maps the poll area and returns where it lies in VRAM.
func (r *rig) bar1() uint64 {
	s := r.newSpace()
	area := r.alloc(gf100.Channels * gf100.USERDSize)
	s.mapVRAM(userdBAR1, area, gf100.Channels*gf100.USERDSize)
	r.wr(0x1704, 1<<31|uint32(r.instance(s, 128<<20-1)>>12))
	return area
}

// Virtual addresses that every channel of the rig uses.
const (
	vaRing = 0x10000
	vaPush = 0x20000  // pushbuffer, 64 KiB
	vaSem  = 0x40000  // one page of semaphores
	vaData = 0x100000 // 1 MiB of VRAM
	vaRAM  = 0x400000 // 1 MiB of guest memory
)

const ringLog2 = 6

// channel is a channel of the rig.
type testChannel struct {
	r                     *rig
	id                    uint32
	space                 *space
	inst, userd           uint64
	ring, push, sem, data uint64 // in VRAM
	put                   uint32
	at                    uint64 // next free byte of the pushbuffer
}

func (r *rig) newChannel(id uint32, area uint64) *testChannel {
	c := &testChannel{r: r, id: id, space: r.newSpace(), userd: area + uint64(id)*gf100.USERDSize}
	c.ring, c.push = r.alloc(0x1000), r.alloc(0x10000)
	c.sem, c.data = r.alloc(0x1000), r.alloc(1<<20)
	c.space.mapVRAM(vaRing, c.ring, 0x1000)
	c.space.mapVRAM(vaPush, c.push, 0x10000)
	c.space.mapVRAM(vaSem, c.sem, 0x1000)
	c.space.mapVRAM(vaData, c.data, 1<<20)
	c.space.mapRAM(vaRAM, 0, 1<<20)
	c.inst = r.instance(c.space, shadowpt.VASize-1)
	b := r.vramRead(c.inst, gf100.InstanceSize)
	gf100.InstUSERDLo.Put(b, uint32(c.userd>>12))
	gf100.InstSignature.Put(b, gf100.InstanceSignature)
	gf100.InstGPBaseLo.Put(b, vaRing>>3)
	gf100.InstGPLimit2.Put(b, ringLog2)
	r.vramWrite(c.inst, b)
	r.wr(0x3000+id*8, 0xc0000000|uint32(c.inst>>12))
	r.wr(0x3004+id*8, 0x001f0001)
	return c
}

// runlist commits the channels.
func (r *rig) runlist(ids ...uint32) {
	list := r.alloc(0x1000)
	for i, id := range ids {
		r.vramWrite32(list+uint64(i)*8, id)
		r.vramWrite32(list+uint64(i)*8+4, 4)
	}
	r.wr(0x2270, uint32(list>>12))
	r.wr(0x2274, 0x01f00000|uint32(len(ids)))
	require.Eventually(r.t, func() bool { return r.rd(0x227c)&(1<<20) == 0 }, 5*time.Second, 100*time.Microsecond)
	r.wr(0x2a00, 1<<28)
}

// words writes pushbuffer words and enters them in the ring, without the bell.
func (c *testChannel) words(w ...uint32) {
	if c.at+uint64(len(w))*4 > 0x10000 {
		c.at = 0
	}
	b := make([]byte, 0, len(w)*4)
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	c.r.vramWrite(c.push+c.at, b)
	c.entry(vaPush + c.at | uint64(len(w))<<42)
	c.at += uint64(len(b))
}

func (c *testChannel) entry(q uint64) {
	c.r.vramWrite64(c.ring+uint64(c.put)*8, q)
	c.put = (c.put + 1) & (1<<ringLog2 - 1)
}

func (c *testChannel) bell() { c.bellWith(c.put) }

func (c *testChannel) bellWith(put uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], put)
	c.r.card.WriteBAR(soft.BAR1, userdBAR1+uint64(c.id)*gf100.USERDSize+gf100.USERDGPPut, b[:])
}

func (c *testChannel) submit(w ...uint32) {
	c.words(w...)
	c.bell()
}

func (c *testChannel) getGPGet() uint32 { return c.r.vram32(c.userd + gf100.USERDGPGet) }

// Pushbuffer headers.
func incr(subch, method uint32, data ...uint32) []uint32 {
	return append([]uint32{1<<29 | uint32(len(data))<<16 | subch<<13 | method>>2}, data...)
}

func nonIncr(subch, method uint32, data ...uint32) []uint32 {
	return append([]uint32{3<<29 | uint32(len(data))<<16 | subch<<13 | method>>2}, data...)
}

func immd(subch, method, data uint32) []uint32 {
	return []uint32{4<<29 | data<<16 | subch<<13 | method>>2}
}

func cat(parts ...[]uint32) (out []uint32) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// release writes payload to the i-th semaphore, four words.
func release(i, payload uint32) []uint32 {
	return incr(0, 0x10, 0, vaSem+i*16, payload, 2)
}

func (c *testChannel) semaphore(i uint32) uint32 { return c.r.vram32(c.sem + uint64(i)*16) }

// waitSemaphore waits until the i-th semaphore holds v.
func (c *testChannel) waitSemaphore(i, v uint32) {
	c.r.t.Helper()
	require.Eventually(c.r.t, func() bool { return c.semaphore(i) == v }, 5*time.Second, 50*time.Microsecond,
		"semaphore %d never became %d", i, v)
}

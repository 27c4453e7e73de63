package soft_test

import (
	"encoding/binary"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// rig drives a card as a driver does: registers, PRAMIN, page tables, rings and
// doorbells, and nothing else.
type rig struct {
	t    testing.TB
	card *soft.Card
	host *fakeHost
	next uint64 // VRAM allocator, bottom up
}

const (
	userdBAR1 = 0           // where the rig maps the poll area in BAR1
	ramSize   = 4 << 20     // of the host
	patience  = time.Minute // for events of unknown delay: only a failure waits for so long
	tick      = 50 * time.Microsecond
)

// newRig starts a card as a driver does, with PFIFO on and all interrupts
// enabled.
func newRig(t testing.TB, cfg soft.Config) *rig {
	t.Helper()
	r := newBareRig(t, cfg)
	t.Cleanup(func() { require.NoError(t, r.card.Close()) })
	r.card.AttachHost(r.host)
	r.start()
	return r
}

// newBareRig makes a card that is not attached and not closed by the test.
func newBareRig(t testing.TB, cfg soft.Config) *rig {
	t.Helper()
	if cfg.VRAM == 0 {
		cfg.VRAM = 64 << 20
	}
	c, err := soft.New(cfg)
	require.NoError(t, err)
	h := newFakeHost(t)
	require.NoError(t, c.MapDMA(0, card.Mapping{Mem: h.ram, Write: true, Wrote: func(off, n uint64) {
		if h.wrote != nil {
			h.wrote(off, n)
		}
	}}))
	return &rig{t: t, card: c, host: h, next: 1 << 20}
}

func (r *rig) start() {
	r.wr(0x200, ^uint32(0))
	r.wr(0x2100, ^uint32(0))
	r.wr(0x2140, ^uint32(0))
	r.wr(0x2628, 1)
	r.wr(0x40013c, ^uint32(0))
	for i := range uint32(gf100.PBDMAs) {
		r.wr(0x4010c+i*0x2000, 0xfffffeff)
	}
	for i := range uint32(gf100.CEs) {
		r.startCE(0x104000 + i*0x1000)
	}
	r.wr(0x140, 1)
	r.wr(0x2200, 1)
	r.wr(0x2254, 0x10000000|userdBAR1>>12)
}

// startCE uploads a page of code to a copy engine's controller and starts it.
func (r *rig) startCE(base uint32) {
	r.wr(base+0x180, 1<<24)
	r.wr(base+0x188, 0)
	for range 64 {
		r.wr(base+0x184, 0)
	}
	r.wr(base+0x104, 0)
	r.wr(base+0x100, 2)
}

func (r *rig) rd(off uint32) uint32 { return r.read32(soft.BAR0, uint64(off)) }

func (r *rig) wr(off, v uint32) { r.write32(soft.BAR0, uint64(off), v) }

func (r *rig) read32(bar int, off uint64) uint32 {
	var b [4]byte
	r.card.ReadBAR(bar, off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (r *rig) write32(bar int, off uint64, v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	r.card.WriteBAR(bar, off, b[:])
}

// eventually waits until the condition holds.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(tick) {
		if time.Now().After(end) {
			require.FailNow(r.t, "never happened: "+what)
		}
	}
}

// steady checks that a condition stays true for a while.
func (r *rig) steady(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Millisecond); time.Now().Before(end); time.Sleep(tick) {
		require.True(r.t, ok(), what)
	}
}

// vramWrite and vramRead reach the card's memory through PRAMIN.
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

// fakeHost is guest memory at bus address 0, and a record of interrupts. The
// memory is mapped, as a guest's is: the card and the test share it without
// locks.
type fakeHost struct {
	ram   []byte
	wrote func(off, n uint64) // called when the card wrote RAM, or nil

	mu    sync.Mutex
	line  card.Line
	edges int
}

func newFakeHost(t testing.TB) *fakeHost {
	mem, err := syscall.Mmap(-1, 0, ramSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	// The card is closed by a later clean-up, that is, before this one.
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mem)) })
	return &fakeHost{ram: mem}
}

func (h *fakeHost) Interrupt(l card.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line = l
	if l.Edge {
		h.edges++
	}
}

func (h *fakeHost) edgeCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.edges
}

func (h *fakeHost) level() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.line.Level
}

// load is the guest's own access to its memory.
func (h *fakeHost) load(addr uint64) uint32 { return binary.LittleEndian.Uint32(h.ram[addr:]) }

package soft_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// bars are the two windows with page tables, and what reports their faults.
var bars = []struct {
	name  string
	bar   int
	block uint32
	slot  uint32
}{{"BAR1", soft.BAR1, 0x1704, slotBAR1}, {"BAR3", soft.BAR3, 0x1714, slotBAR3}}

func TestBARWindows(t *testing.T) {
	for _, b := range bars {
		t.Run(b.name, func(t *testing.T) {
			r := newRig(t, soft.Config{})
			r.wr(0x2254, 0x1000000) // no doorbells here

			// Before it is set up, a window shows VRAM as it lies.
			r.write32(b.bar, 0x200000, 0x1234)
			require.Equal(t, uint32(0x1234), r.vram32(0x200000))

			s := r.newSpace()
			mem := r.alloc(8 << 20)
			mem = (mem + shadowpt.BigPage - 1) &^ (shadowpt.BigPage - 1)
			s.mapVRAM(0, mem, 0x4000)
			s.mapRAM(0x4000, 0x8000, 0x1000)
			s.mapPage(0x5000, shadowpt.PTE{Addr: mem + 0x5000, ReadOnly: true})
			s.bigPTE(0x40000, shadowpt.PTE{Valid: true, Addr: mem + 0x40000})
			inst := r.instance(s, 0xfffff)
			r.wr(b.block, 1<<31|uint32(inst>>12))

			for _, n := range []int{1, 2, 4, 8, 3, 64} {
				for _, at := range []uint64{0x0, 0x123, 0xffc, 0xfff, 0x1ffd, 0x3ff9, 0x40000, 0x5ff80} {
					p := make([]byte, n)
					for i := range p {
						p[i] = byte(at) + byte(n+i)
					}
					r.card.WriteBAR(b.bar, at, p)
					got := make([]byte, n)
					r.card.ReadBAR(b.bar, at, got)
					require.Equal(t, p, got, "%d bytes at %#x", n, at)
					if at >= 0x40000 || at+uint64(n) <= 0x4000 {
						require.Equal(t, p, r.vramRead(mem+at, n))
					}
				}
			}
			require.Zero(t, r.rd(0x259c))

			// System memory, and an access that straddles into it.
			r.write32(b.bar, 0x4010, 0xcafe)
			require.Equal(t, uint32(0xcafe), r.host.load(0x8010))
			r.host.store(0x8010, 0xbeef)
			require.Equal(t, uint32(0xbeef), r.read32(b.bar, 0x4010))
			r.write32(b.bar, 0x3ffe, 0x44332211)
			require.Equal(t, uint32(0x4433), r.host.load(0x8000)&0xffff)

			// Faults: reads give ones where nothing is, writes do nothing.
			r.vramWrite32(mem+0x5000, 7)
			require.Equal(t, uint32(7), r.read32(b.bar, 0x5000))
			for range 3 { // also when the page is hot
				r.write32(b.bar, 0x5000, 8)
				require.Equal(t, uint32(7), r.read32(b.bar, 0x5000))
				r.mmuFault(b.slot, inst, 0x5000, clientWrite, true, shadowpt.PageReadOnly)
			}
			r.vramWrite32(mem+0x5ffc, 0x04030201)
			require.Equal(t, uint32(0xffff0403), r.read32(b.bar, 0x5ffe))
			r.mmuFault(b.slot, inst, 0x6000, clientRead, false, shadowpt.PageNotPresent)
			require.Equal(t, ^uint32(0), r.read32(b.bar, 0x100000))
			r.mmuFault(b.slot, inst, 0x100000, clientRead, false, shadowpt.VMLimitExceeded)
			require.Zero(t, r.rd(0x259c))

			// A page moves: the old one is seen until the invalidate, at most.
			r.write32(b.bar, 0, 1)
			s.mapPage(0, shadowpt.PTE{Addr: mem + 0x10000})
			r.flush()
			r.write32(b.bar, 0, 2)
			require.Equal(t, []uint32{1, 2}, []uint32{r.vram32(mem), r.vram32(mem + 0x10000)})
			s.pte(0, shadowpt.PTE{})
			r.flush()
			require.Equal(t, ^uint32(0), r.read32(b.bar, 0))
			r.mmuFault(b.slot, inst, 0, clientRead, false, shadowpt.PageNotPresent)

			// Another instance block, without an invalidate.
			o := r.newSpace()
			o.mapVRAM(0x1000, mem+0x20000, 0x1000)
			r.wr(b.block, 1<<31|uint32(r.instance(o, 0xfffff)>>12))
			r.write32(b.bar, 0x1000, 3)
			require.Equal(t, uint32(3), r.vram32(mem+0x20000))

			// An instance block that is none.
			r.wr(b.block, 1<<31|0xfffffff)
			require.Equal(t, ^uint32(0), r.read32(b.bar, 0))
			r.mmuFault(b.slot, 0xfffffff000, 0, clientRead, false, shadowpt.NoChannel)
		})
	}
}

func TestAccessesOutsideBARs(t *testing.T) {
	r := newRig(t, soft.Config{})
	ones := []byte{0xff, 0xff, 0xff, 0xff}
	for _, bar := range []int{soft.BAR0, soft.BAR1, soft.BAR3, soft.BAR5, 2, 4, 6, -1} {
		size := r.card.BARSize(bar)
		for _, off := range []uint64{size, size - 2, size + 1<<32, ^uint64(0), ^uint64(0) - 3, 1 << 63} {
			p := make([]byte, 4)
			r.card.ReadBAR(bar, off, p)
			require.Equal(t, ones, p, "BAR%d+%#x", bar, off)
			r.card.WriteBAR(bar, off, p)
		}
		r.card.ReadBAR(bar, 0, nil)
		r.card.WriteBAR(bar, 0, nil)
	}
	require.Zero(t, r.rd(0x1700), "no write wrapped round")
}

func TestPRAMIN(t *testing.T) {
	r := newRig(t, soft.Config{})
	at := func(off uint64, n int) []byte {
		p := make([]byte, n)
		r.card.ReadBAR(soft.BAR0, 0x700000+off, p)
		return p
	}
	const end = 64 << 20
	r.wr(0x1700, (end-0x10000)>>16)
	r.card.WriteBAR(soft.BAR0, 0x700000+0xfffc, []byte{1, 2, 3, 4})
	require.Equal(t, []byte{1, 2, 3, 4}, at(0xfffc, 4))
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, at(0x10000, 4), "past VRAM")
	require.Equal(t, []byte{0xff, 0xff}, at(0xffff, 2), "across its end")
	r.card.WriteBAR(soft.BAR0, 0x700000+0x10000, []byte{9, 9, 9, 9})
	r.wr(0x1700, 0xffffff)
	require.Equal(t, []byte{0xff}, at(0, 1))

	r.wr(0x1700, 3<<24)
	r.card.WriteBAR(soft.BAR0, 0x700010, []byte{5, 6, 7, 8})
	require.Equal(t, uint32(0x08070605), r.host.load(0x10), "system memory")
	r.wr(0x1700, 2<<24|ramSize>>16)
	require.Equal(t, []byte{0xff}, at(0, 1), "past it")
	r.wr(0x1700, 1<<24)
	require.Equal(t, []byte{0xff}, at(0, 1), "another card's")

	// The window ends where the next registers begin.
	r.wr(0x1700, 0)
	r.card.WriteBAR(soft.BAR0, 0x7ffffc, []byte{1, 2, 3, 4})
	require.Equal(t, []byte{1, 2, 3, 4}, r.vramRead(0xffffc, 4))
	r.wr(0x1700, 0)
	p := make([]byte, 8)
	r.card.ReadBAR(soft.BAR0, 0x7ffffc, p)
	require.Equal(t, []byte{1, 2, 3, 4}, p[:4])
	r.card.WriteBAR(soft.BAR0, 0x6ffffe, []byte{0xa, 0xb, 0xc, 0xd})
	require.Equal(t, []byte{0xc, 0xd}, r.vramRead(0, 2))
}

// Nothing that a guest does a million times may allocate.
func TestAccessesDoNotAllocate(t *testing.T) {
	for _, a := range accesses {
		r := newRig(t, soft.Config{})
		r.bar1()
		r.bar3()
		r.wr(0x1700, 0x20)
		buf := make([]byte, a.n)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if a.write {
				r.card.WriteBAR(a.bar, a.off, buf)
			} else {
				r.card.ReadBAR(a.bar, a.off, buf)
			}
		}), a.name)
	}
}

// Nor does a channel's work: fences, copies, faults of others included.
func TestStepsDoNotAllocate(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.submit(incr(2, 0, classM2MF)...)
	c.words(cat(copyM2MF(vaRAM+0x1000, vaData, 64), release32(vaRAM, 0), incr(0, 0x20, 0), []uint32{0})...)
	payload := c.push + 8 + (3+3+3+2+3)*4 // of the release, after the first submission
	n := uint32(0)
	put := make([]byte, 4)
	word := make([]byte, 4)
	entry := make([]byte, 8)
	for i := range entry {
		entry[i] = byte(c.last >> (8 * i))
	}
	require.Less(t, testing.AllocsPerRun(100, func() {
		n++
		word[0] = byte(n)
		r.card.WriteVRAM(payload, word)
		r.card.WriteVRAM(c.ring+uint64(c.put)*8, entry)
		c.put = (c.put + 1) & (1<<ringLog2 - 1)
		put[0] = byte(c.put)
		r.card.WriteBAR(soft.BAR1, uint64(c.id)*4096+0x8c, put)
		for end := time.Now().Add(patience); r.host.load(0) != n && time.Now().Before(end); {
			runtime.Gosched()
		}
	}), 1.0)
	require.Equal(t, n, r.host.load(0))
}

// bar3 maps 1 MiB of VRAM at the start of BAR3.
func (r *rig) bar3() uint64 {
	s := r.newSpace()
	mem := r.alloc(1 << 20)
	s.mapVRAM(0, mem, 1<<20)
	r.wr(0x1714, 1<<31|uint32(r.instance(s, 16<<20-1)>>12))
	return mem
}

// accesses are those that a probe makes hundreds of thousands of times.
var accesses = []struct {
	name  string
	bar   int
	off   uint64
	n     int
	write bool
}{
	{"register-read", soft.BAR0, 0x400700, 4, false},
	{"register-write", soft.BAR0, 0x400204, 4, true},
	{"interrupt-status-read", soft.BAR0, 0x100, 4, false},
	{"PRAMIN-read", soft.BAR0, 0x700100, 4, false},
	{"PRAMIN-write", soft.BAR0, 0x700100, 4, true},
	{"BAR3-read", soft.BAR3, 0x1234, 4, false},
	{"BAR3-byte-write", soft.BAR3, 0x1234, 1, true},
	{"BAR1-write", soft.BAR1, 0x40, 4, true},
	{"doorbell-stray", soft.BAR1, 0x508c, 4, true},
}

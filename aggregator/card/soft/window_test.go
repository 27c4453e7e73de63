package soft_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Both windows move bytes of any width and place to where their tables say, report faults, and
// follow their tables after an invalidate.
func TestBARWindows(t *testing.T) {
	for _, b := range []struct {
		name        string
		bar         int
		block, slot uint32
	}{{"BAR1", soft.BAR1, 0x1704, slotBAR1}, {"BAR3", soft.BAR3, 0x1714, slotBAR3}} {
		t.Run(b.name, func(t *testing.T) {
			r := newRig(t, soft.Config{})
			r.wr(0x2254, 0x1000000) // no doorbells here
			s := r.newSpace()
			mem := (r.alloc(8<<20) + shadowpt.BigPage - 1) &^ (shadowpt.BigPage - 1)
			s.mapVRAM(0, mem, 0x4000)
			s.mapRAM(0x4000, 0x8000, 0x1000)
			s.mapPage(0x5000, shadowpt.PTE{Addr: mem + 0x5000, ReadOnly: true})
			s.bigPTE(0x40000, shadowpt.PTE{Valid: true, Addr: mem + 0x40000})
			inst := r.instance(s, 0xfffff)
			r.wr(b.block, 1<<31|uint32(inst>>12))

			for _, n := range []int{1, 2, 4, 8, 3, 64} {
				for _, at := range []uint64{0x0, 0x123, 0xffc, 0xfff, 0x3ff9, 0x40000, 0x5ff80} {
					p, got := bytes.Repeat([]byte{byte(at) + byte(n)}, n), make([]byte, n)
					r.card.WriteBAR(b.bar, at, p)
					r.card.ReadBAR(b.bar, at, got)
					require.Equal(t, p, got, "%d bytes at %#x", n, at)
					if at >= 0x40000 || at+uint64(n) <= 0x4000 {
						require.Equal(t, p, r.vramRead(mem+at, n))
					}
				}
			}
			r.write32(b.bar, 0x3ffe, 0x44332211)
			require.Equal(t, uint32(0x4433), r.host.load(0x8000)&0xffff, "across into system memory")

			// Reads give ones where nothing is, writes do nothing.
			r.vramWrite(mem+0x5000, []byte{7})
			require.Equal(t, uint32(7), r.read32(b.bar, 0x5000))
			for range 3 { // also when the page is hot
				r.write32(b.bar, 0x5000, 8)
				require.Equal(t, uint32(7), r.read32(b.bar, 0x5000))
				r.mmuFault(b.slot, inst, 0x5000, clientWrite, true, shadowpt.PageReadOnly)
			}
			require.Equal(t, uint32(0xffff0000), r.read32(b.bar, 0x5ffe))
			r.mmuFault(b.slot, inst, 0x6000, clientRead, false, shadowpt.PageNotPresent)

			// A page moves: after the invalidate, at the latest, the new one is seen.
			r.write32(b.bar, 0, 1)
			s.mapPage(0, shadowpt.PTE{Addr: mem + 0x10000})
			r.flush()
			r.write32(b.bar, 0, 2)
			require.Equal(t, []uint32{1, 2}, []uint32{r.vram32(mem), r.vram32(mem + 0x10000)})

			// Another instance block, without an invalidate, and one that is none.
			o := r.newSpace()
			o.mapVRAM(0x1000, mem+0x20000, 0x1000)
			r.wr(b.block, 1<<31|uint32(r.instance(o, 0xfffff)>>12))
			r.write32(b.bar, 0x1000, 3)
			require.Equal(t, uint32(3), r.vram32(mem+0x20000))
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
	p := make([]byte, 4)
	for _, at := range []uint32{64<<20>>16 - 1, 0xffffff, 2<<24 | ramSize>>16, 1 << 24} {
		r.wr(0x1700, at)
		r.card.WriteBAR(soft.BAR0, 0x70fffe, make([]byte, 4))
		r.card.ReadBAR(soft.BAR0, 0x70fffe, p)
		require.Equal(t, ones, p, "PRAMIN %x, at the end of memory or behind it", at)
	}
}

// Nothing that a guest does a million times may allocate.
func TestAccessesDoNotAllocate(t *testing.T) {
	r := newRig(t, soft.Config{})
	r.bar1()
	r.wr(0x1714, r.rd(0x1704)) // BAR3 shows the same
	r.wr(0x1700, 0x20)
	for _, a := range []struct {
		bar   int
		off   uint64
		n     int
		write bool
	}{
		{soft.BAR0, 0x400700, 4, false},
		{soft.BAR0, 0x400204, 4, true},
		{soft.BAR0, 0x100, 4, false},    // interrupt status
		{soft.BAR0, 0x700100, 4, false}, // PRAMIN
		{soft.BAR0, 0x700100, 4, true},
		{soft.BAR3, 0x1234, 4, false},
		{soft.BAR3, 0x1234, 1, true},
		{soft.BAR1, 0x40, 4, true},
		{soft.BAR1, 0x508c, 4, true}, // a doorbell of no channel
	} {
		buf := make([]byte, a.n)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if a.write {
				r.card.WriteBAR(a.bar, a.off, buf)
			} else {
				r.card.ReadBAR(a.bar, a.off, buf)
			}
		}), "%+v", a)
	}
}

// Nor does a channel's work: fences, copies, faults of others included.
func TestStepsDoNotAllocate(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	c.submit(incr(2, 0, classM2MF)...)
	c.words(cat(copyM2MF(vaRAM+0x1000, vaData, 64), release32(vaRAM, 0), incr(0, 0x20, 0), []uint32{0})...)
	payload := c.push + 8 + (3+3+3+2+3)*4 // of the release, after the first submission
	n, put, word := uint32(0), make([]byte, 4), make([]byte, 4)
	entry := binary.LittleEndian.AppendUint64(nil, c.last)
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

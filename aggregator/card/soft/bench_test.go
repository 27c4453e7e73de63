package soft_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// window maps 1 MiB of VRAM at the start of BAR3.
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

func BenchmarkAccess(b *testing.B) {
	for _, a := range accesses {
		b.Run(a.name, func(b *testing.B) {
			r := newRig(b, soft.Config{})
			r.bar1()
			r.bar3()
			r.wr(0x1700, 0x20)
			buf := make([]byte, a.n)
			b.ReportAllocs()
			for b.Loop() {
				if a.write {
					r.card.WriteBAR(a.bar, a.off, buf)
				} else {
					r.card.ReadBAR(a.bar, a.off, buf)
				}
			}
		})
	}
}

// BenchmarkBAR3Sweep writes a page byte by byte, as a driver clears tables.
func BenchmarkBAR3Sweep(b *testing.B) {
	r := newRig(b, soft.Config{})
	r.bar3()
	buf := []byte{0}
	off := uint64(0)
	for b.Loop() {
		r.card.WriteBAR(soft.BAR3, off&0xfffff, buf)
		off++
	}
}

// BenchmarkFence is the time from a doorbell to its semaphore, polled in memory
// that needs no trap.
func BenchmarkFence(b *testing.B) {
	r := newRig(b, soft.Config{})
	c := r.newChannel(1, r.bar1())
	r.runlist(1)
	c.words(release32(vaRAM, 0)...)
	payload := c.push + 12
	var word [4]byte
	n := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint32(word[:], n)
		r.card.WriteVRAM(payload, word[:])
		c.again()
		for r.host.load(0) != n {
			runtime.Gosched()
		}
	}
}

// BenchmarkMethods is the rate at which a channel takes methods that do nothing.
func BenchmarkMethods(b *testing.B) {
	const count = 1 << 13
	r := newRig(b, soft.Config{})
	c := r.newChannel(1, r.bar1())
	r.runlist(1)
	nops := nonIncr(0, 8, make([]uint32, count-1)...)
	c.words(cat(nops, release32(vaRAM, 0))...)
	payload := c.push + uint64(len(nops)+3)*4
	var word [4]byte
	n := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint32(word[:], n)
		r.card.WriteVRAM(payload, word[:])
		c.again()
		for r.host.load(0) != n {
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "methods/s")
}

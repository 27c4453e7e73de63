package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// benchMemory is memory that lies together, given out in runs of at most run
// bytes that end at multiples of run.
type benchMemory struct {
	mem []byte
	run uint64
}

func (m *benchMemory) Bytes(va uint64, n int, write bool) ([]byte, *Fault) {
	if va >= uint64(len(m.mem)) {
		return nil, &Fault{VA: va, Write: write}
	}
	end := min(va+uint64(n), uint64(len(m.mem)), va&^(m.run-1)+m.run)
	return m.mem[va:end], nil
}

var benchRuns = []struct {
	name string
	run  uint64
}{{"pages", pageSize}, {"bigpages", 128 << 10}, {"together", 1 << 40}}

// benchCopy times an engine's copy of size bytes from 0 to size, and copy() of
// the same bytes in the same run, and reports the ratio of the medians (1 = as
// fast as copy).
func benchCopy(b *testing.B, size, run uint64, start func(*Env) Outcome, step func(*Env) Outcome) {
	m := &benchMemory{mem: make([]byte, 2*size), run: run}
	for i := range m.mem {
		m.mem[i] = byte(i)
	}
	env := newEnv(m)
	var plain, engine []time.Duration
	b.SetBytes(int64(size))
	for b.Loop() {
		t0 := time.Now()
		copy(m.mem[size:], m.mem[:size])
		t1 := time.Now()
		for o := start(env); o != Done; o = step(env) {
			if o != Busy {
				b.Fatal(o)
			}
		}
		plain = append(plain, t1.Sub(t0))
		engine = append(engine, time.Since(t1))
	}
	slices.Sort(plain)
	slices.Sort(engine)
	p, e := plain[len(plain)/2], engine[len(engine)/2]
	b.ReportMetric(float64(p)/float64(e), "of-copy()")
	b.ReportMetric(float64(size)/e.Seconds()/1e9, "GB/s")
}

func BenchmarkLinear(b *testing.B) {
	for _, size := range []uint64{4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20} {
		for _, r := range benchRuns {
			b.Run(fmt.Sprintf("M2MF/%dKiB/%s", size>>10, r.name), func(b *testing.B) {
				var g GR
				g.send(b, newEnv(newTestMemory()), 0x9039, writes{{0x310, 0}, {0x23c, uint32(size)}, {0x314, 4096}, {0x318, 4096}, {0x31c, 4096}, {0x320, uint32(size / 4096)}})
				benchCopy(b, size, r.run, func(e *Env) Outcome { return g.Method(e, 0x9039, 0x300, 0x110) }, g.Step)
			})
		}
	}
	for _, size := range []uint64{4 << 10, 1 << 20, 16 << 20} {
		for _, r := range benchRuns {
			b.Run(fmt.Sprintf("CE/%dKiB/%s", size>>10, r.name), func(b *testing.B) {
				var c CE
				c.send(b, newEnv(newTestMemory()), writes{{0x310, 0}, {0x318, uint32(size)}, {0x31c, 4096}, {0x320, 4096}, {0x324, 4096}, {0x328, uint32(size / 4096)}})
				benchCopy(b, size, r.run, func(e *Env) Outcome { return c.Method(e, 0x300, 0x110) }, c.Step)
			})
		}
	}
}

// BenchmarkBlockLinear copies surfaces of 4 KiB lines between pitch and blocks
// of 2 GOBs.
func BenchmarkBlockLinear(b *testing.B) {
	const width = 4096
	for _, dir := range []struct {
		name   string
		launch uint32
	}{{"tile", 0x010}, {"untile", 0x100}, {"tiled-to-tiled", 0x000}} {
		for _, size := range []uint64{64 << 10, 1 << 20, 16 << 20} {
			for _, r := range benchRuns {
				b.Run(fmt.Sprintf("%s/%dKiB/%s", dir.name, size>>10, r.name), func(b *testing.B) {
					var g GR
					height := uint32(size / width)
					g.send(b, newEnv(newTestMemory()), 0x9039, writes{
						{0x204, 0x10}, {0x208, width}, {0x20c, height}, {0x220, 0x10}, {0x224, width}, {0x228, height},
						{0x310, 0}, {0x23c, uint32(size)}, {0x314, width}, {0x318, width}, {0x31c, width}, {0x320, height}})
					benchCopy(b, size, r.run, func(e *Env) Outcome { return g.Method(e, 0x9039, 0x300, dir.launch) }, g.Step)
				})
			}
		}
	}
}

// BenchmarkInline uploads from the pushbuffer, in bulk and word by word.
func BenchmarkInline(b *testing.B) {
	data := make([]byte, 2047*4)
	m := &benchMemory{mem: make([]byte, 1<<20), run: pageSize}
	env := newEnv(m)
	var g GR
	g.send(b, env, 0x9039, writes{{0x31c, uint32(len(data))}, {0x320, 1}})
	b.Run("bulk", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			g.Method(env, 0x9039, 0x300, 0x111)
			if n, o := g.Inline(env, 0x9039, 0x304, data); n != len(data) || o != Done {
				b.Fatal(n, o)
			}
		}
	})
	b.Run("words", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			g.Method(env, 0x9039, 0x300, 0x111)
			for range len(data) / 4 {
				g.Method(env, 0x9039, 0x304, 0x12345678)
			}
		}
	})
}

func BenchmarkStoredMethod(b *testing.B) {
	var g GR
	env := newEnv(newTestMemory())
	for b.Loop() {
		g.Method(env, 0x9097, 0x1618, 0)
	}
}

package mmio

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hotAccesses are the kinds of access a guest makes most.
var hotAccesses = []struct {
	name string
	off  uint32
	size int
}{
	{"register", 0x200, 4},
	{"register-with-effect", 0x1400, 4},
	{"repeated", 0x1430, 4},
	{"narrow-pair", 0x210, 4},
	{"two-registers", 0x1420, 8},
	{"straddling", 0x1ff, 2},
	{"aperture", 0x3000, 4},
	{"aperture-64", 0x3000, 64},
	{"hole", 0x104, 4},
	{"outside", 0x3ffe, 4},
}

// tracing returns a trace of everything, attached to s.
func tracing(t testing.TB, s *Space) *Trace {
	tr, err := NewTrace(1 << 12)
	require.NoError(t, err)
	s.SetTrace(tr)
	return tr
}

func TestNoAllocations(t *testing.T) {
	for _, trace := range []bool{false, true} {
		for _, a := range hotAccesses {
			s := smallSpace(t)
			if trace {
				tracing(t, s)
			}
			p := make([]byte, a.size)
			s.Read(a.off, p)
			require.Zero(t, testing.AllocsPerRun(200, func() { s.Read(a.off, p) }), "read of %s, trace %v", a.name, trace)
			require.Zero(t, testing.AllocsPerRun(200, func() { s.Write(a.off, p) }), "write of %s, trace %v", a.name, trace)
			s.Read32(a.off)
			require.Zero(t, testing.AllocsPerRun(200, func() { s.Read32(a.off); s.Write32(a.off, 1) }), "dword of %s, trace %v", a.name, trace)
		}
	}
	s, err := New(1<<20, nil, nil, nil)
	require.NoError(t, err)
	s.Read32(0)
	off := uint32(0)
	require.Zero(t, testing.AllocsPerRun(5000, func() { s.Read32(off); off += 4 }), "holes never seen before")
}

func BenchmarkAccess(b *testing.B) {
	for _, trace := range []string{"off", "elsewhere", "on"} {
		for _, a := range hotAccesses {
			for _, dir := range []string{"read", "write"} {
				b.Run("trace="+trace+"/"+a.name+"/"+dir, func(b *testing.B) {
					s := smallSpace(b)
					switch trace {
					case "on":
						tracing(b, s)
					case "elsewhere":
						require.NoError(b, tracing(b, s).Select(Range{0x10, 0x1f}, Range{0x2800, 0x28ff}))
					}
					p := make([]byte, a.size)
					do := s.Read
					if dir == "write" {
						do = s.Write
					}
					b.ReportAllocs()
					for b.Loop() {
						do(a.off, p)
					}
				})
			}
		}
	}
}

// uncounted is the engine without counts, times and trace: what dispatch and
// access modes cost by themselves.
type uncounted struct{ *Space }

func (s uncounted) Read(off uint32, p []byte) {
	if uint64(off)+uint64(len(p)) > uint64(s.size) {
		clear(p)
		return
	}
	for len(p) > 0 {
		id := s.find(off)
		r := s.rows[id]
		if r.window != nil {
			q := r.windowPart(off, p)
			clear(q)
			r.window.Read(off-r.windowBase, q)
			off += uint32(len(q))
			p = p[len(q):]
			continue
		}
		n, mask := part(off, len(p))
		at := off &^ 3
		var v, declared uint32
		for ; id != 0; id = r.next {
			r = s.rows[id]
			declared |= r.lanes
			if r.lanes&mask == 0 {
				continue
			}
			one := s.mem[at/4] & r.lanes &^ r.wo
			if r.rc != 0 {
				s.mem[at/4] &^= r.rc & mask
			}
			if r.hooks.Read != nil {
				one = r.hooks.Read(r.rep.instance(at), one>>r.shift) << r.shift & r.lanes
			}
			v |= one
		}
		v |= s.mem[at/4] & mask &^ declared
		v >>= off & 3 * 8
		for i := range n {
			p[i] = byte(v >> (i * 8))
		}
		off += uint32(n)
		p = p[n:]
	}
}

// The uncounted twin must be the same engine, or its ratio means nothing.
func TestUncountedReadsTheSame(t *testing.T) {
	a, b := smallSpace(t), uncounted{smallSpace(t)}
	for _, size := range []int{1, 2, 4, 8} {
		for off := uint32(0); off < a.size; off++ {
			p, q := make([]byte, size), make([]byte, size)
			a.Read(off, p)
			b.Read(off, q)
			if string(p) != string(q) {
				require.Equal(t, p, q, "%d bytes at %#x", size, off)
			}
		}
	}
}

// BenchmarkCountingCost runs counted and uncounted reads in turns of a thousand
// and compares the fastest turn of each, which the machine's other work does not
// reach.
func BenchmarkCountingCost(b *testing.B) {
	const turn = 1000
	for _, a := range hotAccesses {
		b.Run(a.name, func(b *testing.B) {
			s := smallSpace(b)
			plain := uncounted{s}
			p := make([]byte, a.size)
			for range 10 * turn { // past the first accesses, which are all timed
				s.Read(a.off, p)
			}
			with, without := time.Hour, time.Hour
			for b.Loop() {
				start := time.Now()
				for range turn {
					s.Read(a.off, p)
				}
				middle := time.Now()
				for range turn {
					plain.Read(a.off, p)
				}
				with, without = min(with, middle.Sub(start)), min(without, time.Since(middle))
			}
			b.ReportMetric(0, "ns/op") // an op is two turns: not a figure for anybody
			b.ReportMetric(float64(with)/turn, "ns/counted")
			b.ReportMetric(float64(without)/turn, "ns/uncounted")
			b.ReportMetric(float64(with)/float64(without), "ratio")
		})
	}
}

// BenchmarkNew is what starting a virtual GPU costs here: 16 MiB of registers,
// a thousand rows, one large aperture.
func BenchmarkNew(b *testing.B) {
	regs := make([]Reg, 1000)
	for i := range regs {
		regs[i] = Reg{Name: "NV_R" + digits(uint64(i)), Offset: uint32(i) * 0x400, Rep: []Dim{{16, 8}}, Reset: 1}
	}
	var bind Bindings
	bind.OnWindow("PRAMIN", Window{
		Read:  func(_ uint32, p []byte) { binary.LittleEndian.PutUint32(p, 0) },
		Write: func(uint32, []byte) {},
	})
	b.ReportAllocs()
	for b.Loop() {
		_, err := New(16<<20, []Block{{Name: "B", Regs: regs}}, []Aperture{{Name: "PRAMIN", Offset: 0x700000, Size: 1 << 20}}, &bind)
		require.NoError(b, err)
	}
}

func BenchmarkState(b *testing.B) {
	s, err := New(16<<20, []Block{{Name: "B", Regs: []Reg{{Name: "NV_A"}}}}, nil, nil)
	require.NoError(b, err)
	for b.Loop() {
		s.Write32(0, 1)
		require.Len(b, s.State().Values, 1)
	}
}

package mmio

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// twin is the slow engine: bytes in a map, linear search through every instance
// of every row, one bit at a time. It shares the declarations with the engine,
// and nothing else.
type twin struct {
	size      uint32
	regs      []Reg
	apertures []Aperture
	bytes     map[uint32]byte

	counts  map[string]*RowCount
	missed  Missed
	holes   map[uint32]*Hole
	effect  func(e effect) uint32 // what a read effect makes of e.Value
	barrier bool                  // the last access was one
}

// effect is one call of a bound effect, by either engine.
type effect struct {
	Name  string
	Inst  int
	Write bool
	Value uint32 // of a read effect
	W     Write
	Off   uint32 // of a window
	Data  string
}

func newTwin(size uint32, regs []Reg, apertures []Aperture) *twin {
	t := &twin{size: size, regs: regs, apertures: apertures,
		bytes: map[uint32]byte{}, counts: map[string]*RowCount{}, holes: map[uint32]*Hole{}}
	for _, r := range regs {
		for _, off := range t.offsets(r) {
			t.store(r, off, r.Reset)
		}
	}
	return t
}

func (t *twin) offsets(r Reg) []uint32 {
	rep := append(slices.Clone(r.Rep), Dim{1, 4}, Dim{1, 4})
	var out []uint32
	for i := range rep[0].Count {
		for j := range rep[1].Count {
			out = append(out, r.Offset+uint32(i)*rep[0].Stride+uint32(j)*rep[1].Stride)
		}
	}
	return out
}

func width(r Reg) uint32 {
	if r.Width == 0 {
		return 4
	}
	return uint32(r.Width)
}

func modeOf(r Reg, bit uint32) Access {
	for _, f := range r.Fields {
		if uint32(f.Lo) <= bit && bit <= uint32(f.Hi) {
			return f.Access
		}
	}
	return r.Access
}

func (t *twin) load(r Reg, off uint32) uint32 {
	var v uint32
	for i := range width(r) {
		v += uint32(t.bytes[off+i]) << (8 * i)
	}
	return v
}

func (t *twin) store(r Reg, off, v uint32) {
	for i := range width(r) {
		t.bytes[off+i] = byte(v >> (8 * i))
	}
}

// poke sets bits in the first register of the table.
func (t *twin) poke(bits uint32) {
	first := t.regs[0]
	t.store(first, first.Offset, t.load(first, first.Offset)|bits)
}

func (t *twin) owner(off uint32) (Reg, int, uint32, bool) {
	for _, r := range t.regs {
		for i, start := range t.offsets(r) {
			if start <= off && off < start+width(r) {
				return r, i, start, true
			}
		}
	}
	return Reg{}, 0, 0, false
}

func (t *twin) aperture(off uint32) (Aperture, bool) {
	for _, a := range t.apertures {
		if a.Offset <= off && off < a.Offset+a.Size {
			return a, true
		}
	}
	return Aperture{}, false
}

func (t *twin) count(name string, write bool) *RowCount {
	c := t.counts[name]
	if c == nil {
		c = &RowCount{Name: name}
		t.counts[name] = c
	}
	if write {
		c.Writes++
	} else {
		c.Reads++
	}
	return c
}

// access performs one access byte by byte. A register is handled at its first
// byte that the access touches in a dword, all its touched bytes together.
func (t *twin) access(off uint32, p []byte, write bool) {
	if n := len(p); n != 1 && n != 2 && n != 4 && n != 8 {
		t.missed.OddSize++
	}
	if uint64(off)+uint64(len(p)) > uint64(t.size) {
		t.missed.Outside++
		if !write {
			clear(p)
		}
		return
	}
	for i := 0; i < len(p); {
		at := off + uint32(i)
		if a, ok := t.aperture(at); ok {
			n := 0
			for i+n < len(p) && at+uint32(n) < a.Offset+a.Size {
				n++
			}
			t.count(a.Name, write)
			e := effect{Name: a.Name, Write: write, Off: at - a.Offset, Data: fmt.Sprint(n)}
			if write {
				e.Data = string(p[i : i+n])
				t.effect(e)
			} else {
				v := t.effect(e)
				for k := range n {
					p[i+k] = byte(v) + byte(k)
				}
			}
			i += n
			continue
		}
		// The touched bytes of this dword: at .. at+n-1.
		n := 1
		for i+n < len(p) && (at+uint32(n))%4 != 0 {
			n++
		}
		var holes []int
		for k := 0; k < n; {
			r, inst, start, ok := t.owner(at + uint32(k))
			if !ok {
				holes = append(holes, k)
				k++
				continue
			}
			end := min(at+uint32(n), start+width(r))
			t.register(r, inst, start, at+uint32(k), p[i+k:i+int(end-at)], write)
			k = int(end - at)
		}
		if len(holes) > 0 {
			t.hole(at&^3, write)
		}
		for _, k := range holes {
			if write {
				t.bytes[at+uint32(k)] = p[i+k]
			} else {
				p[i+k] = t.bytes[at+uint32(k)]
			}
		}
		i += n
	}
}

func (t *twin) hole(dword uint32, write bool) {
	first := dword
	for {
		if _, _, _, ok := t.owner(first); !ok {
			break
		}
		first++
	}
	h := t.holes[first]
	if h == nil {
		h = &Hole{Offset: first}
		t.holes[first] = h
	}
	if write {
		h.Writes++
		t.missed.HoleWrites++
	} else {
		h.Reads++
		t.missed.HoleReads++
	}
}

// register handles the touched bytes p of one register; at is the first one's
// offset.
func (t *twin) register(r Reg, inst int, start, at uint32, p []byte, write bool) {
	c := t.count(r.Name, write)
	if r.Stub {
		t.missed.Stubs++
	}
	touched := func(bit uint32) bool {
		b := start + bit/8
		return at <= b && b < at+uint32(len(p))
	}
	if write && r.Barrier&BarrierWrite != 0 || !write && r.Barrier&BarrierRead != 0 {
		t.barrier = true
	}
	old := t.load(r, start)
	if !write {
		seen, keep := old, old
		for bit := range width(r) * 8 {
			switch mode := modeOf(r, bit); {
			case mode == WO:
				seen &^= 1 << bit
			case mode == RC && touched(bit):
				keep &^= 1 << bit
			}
		}
		t.store(r, start, keep)
		if r.Effect != "" {
			seen = t.effect(effect{Name: r.Name, Inst: inst, Value: seen})
		}
		for i := range p {
			p[i] = byte(seen >> (8 * (at - start + uint32(i))))
		}
		return
	}
	var w Write
	w.Old, w.New = old, old
	canChange := false
	for bit := range width(r) * 8 {
		if !touched(bit) {
			continue
		}
		one := p[start+bit/8-at]>>(bit%8)&1 == 1
		w.Mask |= 1 << bit
		if one {
			w.Data |= 1 << bit
		}
		switch modeOf(r, bit) {
		case RW, WO:
			canChange = true
			w.New &^= 1 << bit
			if one {
				w.New |= 1 << bit
			}
		case W1C:
			canChange = true
			if one {
				w.New &^= 1 << bit
			}
		case W1S:
			canChange = true
			if one {
				w.New |= 1 << bit
			}
		}
	}
	if !canChange {
		t.missed.ReadOnly++
		c.ReadOnly++
	}
	t.store(r, start, w.New)
	if r.Effect != "" {
		t.effect(effect{Name: r.Name, Inst: inst, Write: true, W: w})
	}
}

const twinSize = 4 * pageSize

// drawTable makes a random table that New accepts: crowded around a few
// offsets, so that rows share dwords and accesses meet them.
func drawTable(t *rapid.T) (regs []Reg, apertures []Aperture) {
	modes := rapid.SampledFrom([]Access{RW, RO, WO, W1C, W1S, RC})
	taken := map[uint32]int{} // byte -> row, or -1 for an aperture
	if rapid.Bool().Draw(t, "aperture") {
		a := Aperture{Name: "WINDOW", Offset: uint32(rapid.IntRange(0, 3).Draw(t, "at")) * pageSize, Size: pageSize, Effect: "window"}
		apertures = append(apertures, a)
		for off := a.Offset; off < a.Offset+a.Size; off++ {
			taken[off] = -1
		}
	}
	offset := rapid.OneOf(rapid.IntRange(0, 0x30), rapid.IntRange(pageSize-0x10, pageSize+0x10),
		rapid.IntRange(2*pageSize-0x10, 2*pageSize+0x10), rapid.IntRange(twinSize-0x20, twinSize-1))
	for n := range rapid.IntRange(1, 24).Draw(t, "rows") {
		r := Reg{Name: fmt.Sprintf("NV_R%d", n), Width: rapid.SampledFrom([]uint8{0, 1, 2, 4}).Draw(t, "width")}
		r.Offset = uint32(offset.Draw(t, "offset")) / width(r) * width(r)
		r.Access = modes.Draw(t, "mode")
		r.Stub = rapid.Bool().Draw(t, "stub")
		r.Barrier = Barrier(rapid.IntRange(0, 3).Draw(t, "order"))
		if rapid.Bool().Draw(t, "effect") {
			r.Effect = "an effect"
		}
		bits := width(r) * 8
		r.Reset = rapid.Uint32().Draw(t, "reset") & uint32(1<<bits-1)
		for lo := uint32(0); lo < bits && rapid.Bool().Draw(t, "field"); {
			lo += uint32(rapid.IntRange(0, 5).Draw(t, "gap"))
			hi := lo + uint32(rapid.IntRange(0, 12).Draw(t, "length"))
			if hi >= bits {
				break
			}
			r.Fields = append(r.Fields, Field{Name: "F", Hi: uint8(hi), Lo: uint8(lo), Access: modes.Draw(t, "field mode")})
			lo = hi + 1
		}
		switch rapid.IntRange(0, 3).Draw(t, "dims") {
		case 1:
			r.Rep = []Dim{{rapid.IntRange(1, 5).Draw(t, "count"), uint32(rapid.IntRange(1, 4).Draw(t, "stride")) * 4}}
		case 2:
			small := Dim{rapid.IntRange(1, 3).Draw(t, "small"), uint32(rapid.IntRange(1, 3).Draw(t, "stride")) * 4}
			large := Dim{rapid.IntRange(1, 3).Draw(t, "large"), uint32(small.Count)*small.Stride + uint32(rapid.IntRange(0, 2).Draw(t, "pad"))*4}
			r.Rep = []Dim{large, small}
			if rapid.Bool().Draw(t, "inner is larger") {
				r.Rep = []Dim{small, large}
			}
		}
		if claim(taken, r, n, regs) {
			regs = append(regs, r)
		}
	}
	return regs, apertures
}

// claim marks the row's bytes, or refuses a row that New would refuse.
func claim(taken map[uint32]int, r Reg, n int, regs []Reg) bool {
	offs := (&twin{}).offsets(r)
	for _, off := range offs {
		if off+width(r) > twinSize {
			return false
		}
		for b := range uint32(4) {
			row, hit := taken[off&^3+b]
			if !hit {
				continue
			}
			inRow := off&^3+b >= off && off&^3+b < off+width(r)
			if inRow || row == -1 || len(r.Rep) > 0 || isRepeated(regs, row) {
				return false
			}
		}
	}
	for _, off := range offs {
		for b := range width(r) {
			taken[off+b] = n
		}
	}
	return true
}

func isRepeated(regs []Reg, n int) bool {
	return slices.ContainsFunc(regs, func(r Reg) bool { return r.Name == fmt.Sprintf("NV_R%d", n) && len(r.Rep) > 0 })
}

// pair is the engine and its twin on one table. A read effect scrambles the
// value, garbage above the register's width included. A write effect sets a bit
// in the first register of the table, which may share its dword.
type pair struct {
	space *Space
	twin  *twin

	fast, slow []effect
}

func scramble(e effect) uint32 { return e.Value*0x9e3779b1 + uint32(e.Inst)*7 + e.Off }

func newPair(t require.TestingT, regs []Reg, apertures []Aperture) *pair {
	p := &pair{twin: newTwin(twinSize, regs, apertures)}
	poke := ""
	if len(regs) > 0 {
		poke = regs[0].Name
	}
	var b Bindings
	for _, r := range regs {
		if r.Effect == "" {
			continue
		}
		b.On(r.Name, Hooks{
			Read: func(i int, v uint32) uint32 {
				e := effect{Name: r.Name, Inst: i, Value: v}
				p.fast = append(p.fast, e)
				p.space.Cell(poke, 0).Set(1)
				return scramble(e)
			},
			Write: func(i int, w Write) {
				p.fast = append(p.fast, effect{Name: r.Name, Inst: i, Write: true, W: w})
				p.space.Cell(poke, 0).Set(2)
			},
		})
	}
	for _, a := range apertures {
		b.OnWindow(a.Name, Window{
			Read: func(off uint32, q []byte) {
				e := effect{Name: a.Name, Off: off, Data: fmt.Sprint(cap(q))} // no access to the bytes after it
				p.fast = append(p.fast, e)
				for k := range q {
					q[k] = byte(scramble(e)) + byte(k)
				}
			},
			Write: func(off uint32, q []byte) {
				p.fast = append(p.fast, effect{Name: a.Name, Write: true, Off: off, Data: string(q)})
			},
		})
	}
	p.twin.effect = func(e effect) uint32 {
		p.slow = append(p.slow, e)
		switch {
		case e.Name == "WINDOW": // touches no register
		case e.Write:
			p.twin.poke(2)
		default:
			p.twin.poke(1)
		}
		return scramble(e)
	}
	var err error
	p.space, err = New(twinSize, []Block{{Name: "BLOCK", Regs: regs}}, apertures, &b)
	require.NoError(t, err)
	return p
}

// access performs one access on both and compares what the guest and the
// effects saw.
func (p *pair) access(t require.TestingT, off uint32, data []byte, write bool) {
	p.fast, p.slow = p.fast[:0], p.slow[:0]
	fast, slow := slices.Clone(data), slices.Clone(data)
	kind := BarrierRead
	if write {
		kind = BarrierWrite
		p.space.Write(off, fast)
	} else {
		p.space.Read(off, fast)
	}
	p.twin.barrier = false
	p.twin.access(off, slow, write)
	require.Equal(t, p.twin.barrier, p.space.Barrier(uint64(off), len(data), kind), "barrier at %#x, write %v", off, write)
	require.Equal(t, slow, fast, "bytes at %#x, write %v", off, write)
	require.Equal(t, p.slow, p.fast, "effects of the access at %#x, write %v", off, write)
}

// compare holds the counters and every stored byte against the twin's.
func (p *pair) compare(t require.TestingT) {
	counts := map[string]*RowCount{}
	for _, c := range p.space.Counts() {
		require.NotEmpty(t, c.Block)
		counts[c.Name] = &RowCount{Name: c.Name, Reads: c.Reads, Writes: c.Writes, ReadOnly: c.ReadOnly}
	}
	require.Equal(t, p.twin.counts, counts)
	missed := p.space.Missed()
	holes := map[uint32]*Hole{}
	for _, h := range missed.Holes {
		require.Equal(t, p.space.NameOf(h.Offset), h.Near)
		holes[h.Offset] = &Hole{Offset: h.Offset, Reads: h.Reads, Writes: h.Writes}
	}
	require.Equal(t, p.twin.holes, holes)
	missed.Holes = nil
	require.Equal(t, p.twin.missed, missed)
	for off := range uint32(twinSize) {
		if _, window := p.twin.aperture(off); window {
			continue
		}
		if got := byte(p.space.mem[off/4] >> (off % 4 * 8)); got != p.twin.bytes[off] {
			require.Equal(t, p.twin.bytes[off], got, "stored byte at %#x", off)
		}
	}
}

func engineEqualsTwin(t *rapid.T) {
	regs, apertures := drawTable(t)
	p := newPair(t, regs, apertures)
	offset := rapid.OneOf(rapid.IntRange(0, 0x50), rapid.IntRange(pageSize-0x18, pageSize+0x20),
		rapid.IntRange(2*pageSize-0x18, 2*pageSize+0x20), rapid.IntRange(twinSize-0x28, twinSize+4))
	size := rapid.SampledFrom([]int{1, 2, 4, 8, 1, 2, 4, 8, 3, 17})
	for range rapid.IntRange(1, 60).Draw(t, "accesses") {
		data := make([]byte, size.Draw(t, "size"))
		for i := range data {
			data[i] = rapid.Byte().Draw(t, "byte")
		}
		p.access(t, uint32(offset.Draw(t, "offset")), data, rapid.Bool().Draw(t, "write"))
	}
	p.compare(t)
}

func TestEngineEqualsTwin(t *testing.T) { rapid.Check(t, engineEqualsTwin) }

func FuzzAccess(f *testing.F) { f.Fuzz(rapid.MakeFuzz(engineEqualsTwin)) }

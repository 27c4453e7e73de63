package engine

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// This file is the slow twin: every byte's address straight from the formulas,
// one byte at a time, in a map. It shares no code with the engines.

// pattern is what memory holds before a test at va.
func pattern(va uint64) byte { return byte((va*0x9e3779b97f4a7c15 ^ va>>7*0xc2b2ae3d27d4eb4f) >> 40) }

// modelMemory is memory as the model sees it: the pattern, and what was written.
type modelMemory map[uint64]byte

func (m modelMemory) load(va uint64) byte {
	if b, ok := m[va&vaMask]; ok {
		return b
	}
	return pattern(va & vaMask)
}

func (m modelMemory) word(va uint64, w uint32) {
	for i := range uint64(4) {
		m[(va+i)&vaMask] = byte(w >> (8 * i))
	}
}

// surfaceCase is one side of a copy as a guest describes it.
type surfaceCase struct {
	Linear                     bool
	VA                         uint64
	Pitch                      uint32
	Narrow                     bool // copy engine: 16-byte tiles
	High, Deep                 uint32
	Width, Height, Layer, X, Y uint32 // width and x in bytes (M2MF) or elements (copy engine)
	elem                       uint64 // bytes per element
}

// at is the address of byte i (from the copy's start) of line j.
func (s *surfaceCase) at(i, j uint64) uint64 {
	if s.Linear {
		return (s.VA + j*uint64(s.Pitch) + i) & vaMask
	}
	x, y, z := uint64(s.X)*s.elem+i, uint64(s.Y)+j, uint64(s.Layer)
	wide, high, deep := uint64(64), uint64(8)<<s.High, uint64(1)<<s.Deep
	if s.Narrow {
		wide = 16
	}
	blocksX := (uint64(s.Width)*s.elem + wide - 1) / wide
	blocksY := (uint64(s.Height) + high - 1) / high
	block := (z/deep*blocksY+y/high)*blocksX + x/wide
	off := block*wide*high*deep + z%deep*wide*high
	x, y = x%wide, y%high
	if s.Narrow {
		off += y*16 + x
	} else {
		// The GOB order of Fermi: in a GOB, byte x of line y.
		off += y / 8 * 512
		y %= 8
		off += (x & 32) << 3
		off += (y & 6) << 5
		off += (x & 16) << 1
		off += (y & 1) << 4
		off += x & 15
	}
	return (s.VA + off) & vaMask
}

func drawSurface(t *rapid.T, name string, base uint64, narrow bool, elem uint64) surfaceCase {
	s := surfaceCase{elem: elem}
	s.Linear = rapid.Bool().Draw(t, name+" linear")
	s.VA = base + uint64(rapid.IntRange(0, 5000).Draw(t, name+" va"))
	if rapid.Bool().Draw(t, name+" aligned") {
		s.VA &^= 511
	}
	s.Pitch = uint32(rapid.IntRange(0, 700).Draw(t, name+" pitch"))
	s.High = uint32(rapid.IntRange(0, 5).Draw(t, name+" high"))
	s.Deep = uint32(rapid.IntRange(0, 5).Draw(t, name+" deep"))
	s.Width = uint32(rapid.IntRange(0, 400).Draw(t, name+" width"))
	s.Height = uint32(rapid.IntRange(0, 90).Draw(t, name+" height"))
	s.Layer = uint32(rapid.IntRange(0, 9).Draw(t, name+" layer"))
	s.X = uint32(rapid.IntRange(0, 200).Draw(t, name+" x"))
	s.Y = uint32(rapid.IntRange(0, 40).Draw(t, name+" y"))
	if rapid.Bool().Draw(t, name+" at gob") {
		s.X, s.Y = s.X&^63, s.Y&^7
	}
	s.Narrow = narrow && rapid.Bool().Draw(t, name+" narrow")
	return s
}

// copyCase is a copy with everything around it.
type copyCase struct {
	Src, Dst      surfaceCase
	Length, Lines uint32
	Format        uint32 // copy engine: remap if Remap
	Remap         bool
	Keeps         bool // component 6 is not written, else it is zero
	Const         [2]uint32
	Inline        []byte // M2MF upload
	Sem           uint8  // words of the semaphore: 0, 1 or 4
	SemVA         uint64
	Payload       uint32
	Interrupt     bool
	Holes         uint64 // which of the pages are mapped late
	Budget        int
	Short         bool // memory gives out short runs
}

const (
	srcBase = 0x12_3456_0000
	semBase = 0x40_0000_0000
)

func drawCopy(t *rapid.T) copyCase {
	var c copyCase
	// The destination may lie across the end of the address space.
	dstBase := rapid.SampledFrom([]uint64{0x20_0000_0000, vaMask + 1 - 0x4000}).Draw(t, "dst base")
	c.Src = drawSurface(t, "src", srcBase, false, 1)
	c.Dst = drawSurface(t, "dst", dstBase, false, 1)
	c.Length = uint32(rapid.IntRange(0, 500).Draw(t, "length"))
	c.Lines = uint32(rapid.IntRange(0, 40).Draw(t, "lines"))
	if rapid.Bool().Draw(t, "gapless") {
		c.Src.Pitch, c.Dst.Pitch = c.Length, c.Length
	}
	c.around(t)
	return c
}

func (c *copyCase) around(t *rapid.T) {
	c.Sem = rapid.SampledFrom([]uint8{0, 1, 4}).Draw(t, "sem")
	c.SemVA = semBase + uint64(rapid.IntRange(0xff0, 0x1010).Draw(t, "sem va"))
	c.Payload = rapid.Uint32().Draw(t, "payload")
	c.Interrupt = rapid.Bool().Draw(t, "interrupt")
	if rapid.Bool().Draw(t, "faults") {
		c.Holes = rapid.Uint64().Draw(t, "holes")
	}
	c.Budget = rapid.SampledFrom([]int{0, 1, 7, 300, 5000}).Draw(t, "budget")
	c.Short = rapid.Bool().Draw(t, "short")
}

// result is the twin's result of a copy.
type result struct {
	mem    modelMemory
	reads  map[uint64]bool // pages
	writes map[uint64]bool
	bytes  int
}

func newResult() *result {
	return &result{mem: modelMemory{}, reads: map[uint64]bool{}, writes: map[uint64]bool{}}
}

func (r *result) read(va uint64) byte {
	r.reads[va/pageSize] = true
	return pattern(va)
}

func (r *result) write(va uint64, b byte) {
	r.writes[va/pageSize] = true
	r.mem[va] = b
	r.bytes++
}

func (r *result) semaphore(c *copyCase) {
	if c.Sem == 0 {
		return
	}
	r.mem.word(c.SemVA, c.Payload)
	n := uint64(4)
	if c.Sem == 4 {
		n = 16
		r.mem.word(c.SemVA+4, 0)
		r.mem.word(c.SemVA+8, testNow&0xffffffff)
		r.mem.word(c.SemVA+12, testNow>>32)
	}
	for i := range n {
		r.writes[(c.SemVA+i)/pageSize] = true
	}
}

// m2mfModel is the result of a copy or an upload by M2MF.
func m2mfModel(c *copyCase) *result {
	r := newResult()
	for j := range uint64(c.Lines) {
		for i := range uint64(c.Length) {
			if c.Inline != nil {
				r.write(c.Dst.at(i, j), c.Inline[j*uint64(c.Length)+i])
			} else {
				r.write(c.Dst.at(i, j), r.read(c.Src.at(i, j)))
			}
		}
	}
	r.semaphore(c)
	return r
}

// ceModel is the result of a copy by a copy engine.
func ceModel(c *copyCase) *result {
	r := newResult()
	bpc, ncs, ncd := uint64(1), uint64(1), uint64(1)
	if c.Remap {
		bpc, ncs, ncd = uint64(c.Format>>16&3)+1, uint64(c.Format>>20&3)+1, uint64(c.Format>>24&3)+1
	}
	for j := range uint64(c.Lines) {
		for e := range uint64(c.Length) {
			// The hardware reads whole elements, unless no component is taken.
			used := !c.Remap
			for comp := range ncd {
				used = used || c.Format>>(4*comp)&0xf < 4
			}
			for b := range ncs * bpc {
				if used {
					r.read(c.Src.at(e*ncs*bpc+b, j))
				}
			}
			for comp := range ncd {
				sel := uint64(c.Format>>(4*comp)) & 0xf
				if !c.Remap {
					sel = 0
				}
				for b := range bpc {
					var v byte
					if c.Keeps && sel == 6 {
						r.writes[c.Dst.at((e*ncd+comp)*bpc+b, j)/pageSize] = true
						r.bytes++
						continue
					}
					switch {
					case sel < ncs:
						v = r.read(c.Src.at((e*ncs+sel)*bpc+b, j))
					case sel == 4 || sel == 5:
						v = byte(c.Const[sel-4] >> (8 * b))
					}
					r.write(c.Dst.at((e*ncd+comp)*bpc+b, j), v)
				}
			}
		}
	}
	r.semaphore(c)
	return r
}

// rig is one run of a case: memory with holes that are mapped when the engine
// faults on them.
type rig struct {
	t      require.TestingT
	mem    *testMemory
	env    *Env
	want   *result
	events []Event
	faults int
}

func newRig(t require.TestingT, c *copyCase, want *result) *rig {
	r := &rig{t: t, mem: newTestMemory(), want: want}
	r.env = newEnv(r.mem)
	r.env.Budget = c.Budget
	r.env.Notify = func(ev Event) { r.events = append(r.events, ev) }
	if c.Short {
		k := 0
		r.mem.short = func(n int) int { k++; return 1 + (n*k*7)%n }
	}
	i := 0
	for _, pages := range []map[uint64]bool{want.reads, want.writes} {
		for p := range pages {
			if i++; c.Holes>>(i%64)&1 == 0 {
				r.mapPattern(p)
			}
			// A neighbour that must not change.
			if next := (p + 1) & (vaMask / pageSize); !want.reads[next] && !want.writes[next] {
				r.mapPattern(next)
			}
		}
	}
	return r
}

func (r *rig) mapPattern(page uint64) {
	if r.mem.pages[page] != nil {
		return
	}
	b := make([]byte, pageSize)
	for i := range b {
		b[i] = pattern(page*pageSize + uint64(i))
	}
	r.mem.pages[page] = b
}

// finish brings an operation to its end and mends each fault on the way.
func (r *rig) finish(o Outcome, step func(*Env) Outcome, f *Fault) {
	for n := 0; o == Busy || o == Faulted; n++ {
		require.Less(r.t, n, 1_000_000, "the operation does not end")
		if o == Faulted {
			page := f.VA / pageSize
			pages := r.want.reads
			if f.Write {
				pages = r.want.writes
			}
			require.True(r.t, pages[page], "fault at %x (write %v), which the operation does not touch", f.VA, f.Write)
			require.Nil(r.t, r.mem.pages[page], "fault at %x, which is mapped", f.VA)
			require.Equal(r.t, uint8(reasonNotPresent), f.Reason)
			r.mapPattern(page)
			r.faults++
		}
		o = step(r.env)
	}
	require.Equal(r.t, Done, o)
}

// compare holds all memory against the twin's.
func (r *rig) compare() {
	for page := range r.want.writes {
		require.Contains(r.t, r.mem.pages, page, "page %x was never written", page)
	}
	for page, b := range r.mem.pages {
		for i, got := range b {
			va := page*pageSize + uint64(i)
			if want := r.want.mem.load(va); got != want {
				require.Fail(r.t, "memory differs", "at %x: %02x, want %02x", va, got, want)
			}
		}
	}
}

package rm

import (
	"encoding/binary"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// flat is what a space must map, by page, without pieces: a twin of the record and of the worker's space.
type flat struct {
	*guest
	pages   map[uint64]flatPage // by address
	regions []region
	moved   map[uint64]bool // pages of VRAM that are in the window
	window  *os.File
	refuse  int // maps until one is refused; negative is never
	maps    int
}

type flatPage struct {
	addr  uint64
	bus   bool
	flags shadowpt.Flags
}

// region is RAM of the guest, which comes and goes.
type region struct {
	at    uint64
	write bool
	file  *os.File
	mem   []byte
	there bool
}

const (
	areaPages   = 160
	regionPages = 24
	vramPages   = 32 // half of them in the card's memory
)

func newFlat(t tester) *flat {
	f := &flat{guest: newRig(t, Config{}).join(2), pages: make(map[uint64]flatPage), moved: make(map[uint64]bool), refuse: -1}
	f.w.Refuse = func() uint32 {
		f.maps++
		if f.refuse--; f.refuse == 0 {
			return nvrm.StatusNoMemory
		}
		return 0
	}
	for i := range uint64(3) {
		file, mem, err := memfd("ram", regionPages*page)
		require.NoError(t, err)
		f.regions = append(f.regions, region{at: ramAt + 1<<32 + i*regionPages*page, write: i != 1, file: file, mem: mem})
		for k := range uint64(regionPages) {
			binary.LittleEndian.PutUint64(mem[k*page:], 1+i*1000+k)
		}
		f.toggle(int(i))
	}
	for i := range uint64(vramPages) {
		f.gpu.WriteVRAM(f.vramAt(i), binary.LittleEndian.AppendUint64(nil, 1_000_000+i))
	}
	var err error
	f.window, _, err = memfd("window", vramPages*page)
	require.NoError(t, err)
	return f
}

func (f *flat) vramAt(i uint64) uint64 { return f.base() + f.vram.high - vramPages/2*page + i*page }

func (f *flat) toggle(i int) {
	r := &f.regions[i]
	if r.there = !r.there; r.there {
		require.NoError(f.r.t, f.gpu.MapDMA(r.at, card.Mapping{Mem: r.mem, Write: r.write, Owner: 2, File: r.file}))
	} else {
		f.gpu.UnmapDMA(r.at+page, 1)
	}
}

// move moves a page of VRAM to the window, or back.
func (f *flat) move(i uint64) (done uint64, err error) {
	m := card.Relocation{Addr: f.vramAt(i), Size: page}
	if !f.moved[i] {
		m.To, m.Off = f.window, i*page
	}
	f.gpu.Relocator().QuiesceChannels(nil, func() { done, err = f.gpu.Relocator().Relocate(m) })
	return done, err
}

func (f *flat) reached(addr uint64) bool {
	for _, p := range f.pages {
		if !p.bus && p.addr == addr && p.flags&shadowpt.Supervisor == 0 {
			return true
		}
	}
	return false
}

// tag is the word that a page must begin with, 0 if channels do not reach it.
func (f *flat) tag(p flatPage) uint64 {
	if p.flags&shadowpt.Supervisor != 0 {
		return 0
	}
	if !p.bus {
		return 1_000_000 + (p.addr-f.vramAt(0))/page
	}
	for _, r := range f.regions {
		if off := p.addr - r.at; off < uint64(len(r.mem)) && r.there && (r.write || p.flags&shadowpt.ReadOnly != 0) {
			return binary.LittleEndian.Uint64(r.mem[off:])
		}
	}
	return 0
}

// check compares the worker's space, and what the server reads as channels would.
func (f *flat) check() {
	n := 0
	for va, p := range f.pages {
		got := uint64(0)
		if mem, readOnly := f.w.At(va); mem != nil {
			got = binary.LittleEndian.Uint64(mem)
			require.Equal(f.r.t, p.flags&shadowpt.ReadOnly != 0, readOnly)
			n++
		}
		require.Equal(f.r.t, f.tag(p), got, "at %#x, for %#x", va, p.addr)
		var b [8]byte
		require.Equal(f.r.t, got != 0, f.space.read(va, b[:]))
		require.Equal(f.r.t, got, binary.LittleEndian.Uint64(b[:]))
	}
	require.Equal(f.r.t, n, f.w.Stats().Pages)
}

// set does a change.
func (f *flat) set(c *card.Change) {
	for i := range c.Pages() {
		va := c.VA + i*c.Page
		for k := uint64(0); k < c.Page; k += page {
			if delete(f.pages, va+k); !c.Unmaps() {
				f.pages[va+k] = flatPage{c.PageAddr(i) + k, c.Target.System(), c.Flags & (shadowpt.ReadOnly | shadowpt.Supervisor)}
			}
		}
	}
}

// change draws a change that the tables of a guest could make now.
func (f *flat) change(t *rapid.T) (c card.Change, ok bool) {
	first, n := rapid.Uint64Range(0, areaPages-1).Draw(t, "first"), rapid.Uint64Range(1, 24).Draw(t, "n")
	n = min(n, areaPages-first)
	c = card.Change{VA: dataVA + first*page, Size: n * page, Page: page}
	mapped := uint64(0)
	for i := range n {
		if _, ok := f.pages[c.VA+i*page]; ok {
			mapped++
		}
	}
	switch {
	case mapped == n && rapid.Bool().Draw(t, "over"):
		c.Flags = shadowpt.Mapped | shadowpt.Over
	case mapped > 0:
		return c, true
	default:
		c.Flags = shadowpt.Mapped
	}
	c.Flags |= rapid.SampledFrom([]shadowpt.Flags{0, 0, shadowpt.ReadOnly, shadowpt.Supervisor}).Draw(t, "flags")
	addr, most := f.vramAt(0), uint64(vramPages)
	if rapid.Bool().Draw(t, "bus") {
		c.Target, addr, most = shadowpt.SystemCoherent, f.regions[0].at, 3*regionPages
	}
	if rapid.Bool().Draw(t, "scattered") {
		for range n {
			c.Addrs = append(c.Addrs, addr+rapid.Uint64Range(0, most-1).Draw(t, "page")*page)
		}
		return c, true
	}
	c.Addr = addr + rapid.Uint64Range(0, most-1).Draw(t, "page")*page
	return c, c.End() <= addr+most*page
}

// TestSpace compares a space with its twin, whatever is mapped, unmapped, replaced and refused, and while memory comes
// and goes. The fake fails at parts of parts beyond its depth, and at maps over maps.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFlat(t)
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { f.check() },
			"apply": func(t *rapid.T) {
				was := maps.Clone(f.pages)
				var list []card.Change
				for range rapid.IntRange(1, 12).Draw(t, "changes") {
					if c, ok := f.change(t); ok {
						list = append(list, c)
						f.set(&c)
					}
				}
				if f.refuse = -1; rapid.IntRange(0, 3).Draw(t, "refuse") == 0 {
					f.refuse = rapid.IntRange(1, 12).Draw(t, "maps")
				}
				done, err := f.space.Apply(list)
				f.refuse = -1
				if err == nil {
					require.Equal(t, len(list), done)
					return
				}
				require.ErrorIs(t, err, card.ErrTables)
				f.pages = was
				for i := range list[:done] {
					f.set(&list[i])
				}
				lost := list[done]
				require.False(t, lost.Unmaps())
				lost.Flags = 0
				f.set(&lost)
			},
			"pages": func(t *rapid.T) { // one by one, as programs do
				from := rapid.Uint64Range(0, areaPages-40).Draw(t, "from")
				for i := range uint64(40) {
					c := card.Change{VA: dataVA + (from+i)*page, Size: page, Page: page}
					f.set(&c)
					f.apply(c)
				}
			},
			"big": func(t *rapid.T) {
				c := card.Change{VA: farVA, Size: 4 * bigPage, Page: bigPage, Addr: f.base() + f.vram.high - 4*bigPage, Flags: shadowpt.Mapped}
				f.apply(c, card.Change{VA: c.VA + bigPage, Size: bigPage, Page: bigPage})
				for i, want := range []bool{true, false, true} {
					mem, _ := f.w.At(farVA + uint64(i)*bigPage)
					require.Equal(t, want, mem != nil)
				}
				c.Flags = 0
				f.apply(c)
			},
			"region": func(t *rapid.T) { f.toggle(rapid.IntRange(0, 2).Draw(t, "region")) },
			"move": func(t *rapid.T) {
				i := rapid.Uint64Range(0, vramPages-1).Draw(t, "page")
				stays := i < vramPages/2 && !f.moved[i] && f.reached(f.vramAt(i))
				done, err := f.move(i)
				if stays {
					require.ErrorContains(t, err, "channels reach it")
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, page, done)
				f.moved[i] = !f.moved[i]
				b := make([]byte, 8)
				_, err = f.window.ReadAt(b, int64(i*page))
				require.NoError(t, err)
				require.Equal(t, f.moved[i], binary.LittleEndian.Uint64(b) == 1_000_000+i)
			},
			"refused": func(t *rapid.T) {
				va := rapid.SampledFrom([]uint64{0, nvrm.LowEnd - page, nvrm.ContextFirst - page, nvrm.ContextEnd - page, nvrm.HighFirst - page, nvrm.HighEnd, nvrm.OwnFirst, 1<<57 - 2*page}).Draw(t, "va")
				done, err := f.space.Apply([]card.Change{{VA: va, Size: 2 * page, Page: page, Addr: f.vramAt(0), Flags: shadowpt.Mapped}})
				require.ErrorContains(t, err, "keeps the addresses")
				require.Zero(t, done)
				_, err = f.space.Apply([]card.Change{{VA: dataVA, Size: page, Page: page, Flags: shadowpt.Sparse | shadowpt.Over}})
				require.ErrorIs(t, err, errSparse)
				f.set(&card.Change{VA: dataVA, Size: page, Page: page})
			},
		})
		for i, moved := range f.moved {
			if moved {
				_, err := f.move(i)
				require.NoError(t, err)
			}
		}
	})
}

// TestMerged: what continues in the space and in memory is one call of the driver, parts of parts have a bound, and a
// record too.
func TestMerged(t *testing.T) {
	f := newFlat(t)
	var list []card.Change
	addrs := make([]uint64, 8)
	for i := range uint64(8) {
		addrs[i] = f.vramAt(i)
		list = append(list, card.Change{VA: dataVA + i*page, Size: page, Page: page, Addr: f.vramAt(i), Flags: shadowpt.Mapped})
	}
	list = append(list, card.Change{VA: dataVA + 8*page, Size: 8 * page, Page: page, Addrs: []uint64{
		f.vramAt(8), f.vramAt(9), f.vramAt(10), f.vramAt(11), f.vramAt(12), f.vramAt(13), f.vramAt(14), f.vramAt(20)}, Flags: shadowpt.Mapped})
	f.maps = 0
	f.apply(list...)
	require.Equal(t, 2, f.maps)
	c := card.Change{VA: farVA, Size: regionPages * page, Page: page, Target: shadowpt.SystemCoherent, Addr: f.regions[0].at, Flags: shadowpt.Mapped}
	f.apply(c)
	for i := range uint64(regionPages) {
		f.apply(card.Change{VA: farVA + i*page, Size: page, Page: page})
	}
	require.Equal(t, maxDepth, f.w.Stats().Depth)
	f.mostPieces = f.share.pieces + 2
	done, err := f.space.Apply([]card.Change{{VA: farVA, Size: 3 * page, Page: page, Addrs: addrs[:3], Flags: shadowpt.Mapped}})
	require.ErrorIs(t, err, card.ErrTables)
	require.Zero(t, done)
}

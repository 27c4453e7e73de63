package isolation

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	chip "github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// words are entries that name a place: of pages and of directories, in all memories, with all other bits.
func words(at uint64) (list []uint64) {
	for _, in := range []shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent, 1, 3} {
		pde := shadowpt.Hopper.Dirs[0].Encode(shadowpt.PDE{Small: shadowpt.Table{Present: true, Target: in, Addr: at}})
		pte := shadowpt.Hopper.EncodePTE(shadowpt.PTE{Valid: true, Target: in, Addr: at})
		list = append(list, pde[0], pte, pte|0xfff<<52|0x3f<<3)
	}
	return list
}

const (
	deviceHandle = 0xde1d0000
	spaceHandle  = 0x90f10000
	lastDir      = 4 // of shadowpt.Hopper
)

// called are functions, controls and classes, and handles that any guest has, for calls that make little sense.
var (
	called  = []uint32{4, 10, 47, 65, 70, 71, 72, 73, 76, 76, 76, 103, 103, 103, 1 << 20}
	meaning = []uint64{0, 1, 2, 3, 8, 0x80, 0x81, 0x2080, 0x90f1, 0xc86f, 0xcb97, 0xc8b5, 0x801813, 0x801814, 0x90f10106, 0xa06f0103, 0xa06f0104, 0x20800ac3,
		0xc1d00000, 0xc1d00001, 0xc1e00000, deviceHandle, 0xde1e0000, 0x5d1d0000, 0x5d1e0000, spaceHandle, 0xf1f00001, 0xf1f00002, 1 << 20, 1<<32 - 1}
)

// hopperCases are the ways to a place, with how many of its words the gate tries.
var hopperCases = []struct {
	name  string
	words int
	do    func(h *hopperWard, at, word uint64, write bool)
}{
	{"page entries", 12, func(h *hopperWard, _, word uint64, write bool) {
		h.WriteVRAM(h.s.Entry(len(shadowpt.Hopper.Dirs), h.mine), binary.LittleEndian.AppendUint64(nil, word))
		h.s.Flush(1)
		h.use(h.mine, write)
	}},
	{"directory entries", 12, func(h *hopperWard, at, word uint64, write bool) {
		for level := len(shadowpt.Hopper.Dirs) - 1; level >= 0; level-- {
			s := h.NewSpace()
			va := s.Map(gh100.VRAM, h.AllocVRAM(4096), 4096)
			entry := s.Entry(level, va)
			for _, w := range []uint64{word, words(s.Root())[0]} { // and loops
				h.WriteVRAM(entry, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, w), w))
				s.Flush(1)
			}
			s.Close()
		}
		h.WriteVRAM(h.s.Entry(len(shadowpt.Hopper.Dirs)-1, h.mine), binary.LittleEndian.AppendUint64(nil, word))
		h.s.Flush(1)
		h.use(h.mine, write)
	}},
	{"pages of 64 KiB", 12, func(h *hopperWard, at, word uint64, write bool) {
		own, f := h.AllocVRAM(4096), shadowpt.Hopper
		h.WriteVRAM(own+f.Pages[0].Index(h.mine)*8, binary.LittleEndian.AppendUint64(nil, word))
		for _, table := range []uint64{own, at} { // beside that of small pages
			w := f.Dirs[lastDir].Encode(shadowpt.PDE{Big: shadowpt.Table{Present: true, Addr: table}})
			h.WriteVRAM(h.s.Entry(lastDir, h.mine), binary.LittleEndian.AppendUint64(nil, w[0]))
			h.s.Flush(1)
			h.use(h.mine, write)
			h.use(h.mine+60<<10, write) // a page need not begin at a multiple of its size
		}
	}},
	{"calls", 3, func(h *hopperWard, at, word uint64, _ bool) {
		rng := rand.New(rand.NewPCG(at, word))
		for range 40 {
			p := make([]byte, 0x200)
			for range 16 {
				v := append(meaning, at, word, at>>12, rng.Uint64()>>rng.IntN(64))[rng.IntN(len(meaning)+4)]
				binary.LittleEndian.PutUint64(p[4*rng.IntN(40):], v)
			}
			for i := range 6 { // handles and numbers, before what they are given
				if rng.IntN(4) > 0 {
					binary.LittleEndian.PutUint32(p[4*i:], uint32(meaning[rng.IntN(len(meaning))]))
				}
			}
			h.Send(called[rng.IntN(len(called))], p)
			for _, there := h.Receive(); there; _, there = h.Receive() {
			}
		}
		h.restart()
	}},
	{"GP_PUT and rings", 3, func(h *hopperWard, at, word uint64, _ bool) {
		h.ch.Push(at&(1<<40-1) | word&(1<<32-1)<<32)
		for _, put := range []uint64{word, at, at >> 12, ^word} {
			h.WriteVRAM(h.ch.USERD+chip.USERDGPPut, binary.LittleEndian.AppendUint32(nil, uint32(put)))
			h.Write32(0xbb0090, 1)
		}
		h.restart()
	}},
	{"RAM while it is unmapped, and after", 3, func(h *hopperWard, at, _ uint64, _ bool) {
		raw, mark := h.machine.Raw(), bytes.Repeat([]byte{0x22}, len(h.ram))
		copy(h.ram, mark)
		b := new(push.Buffer).Bind(push.HopperCopy)
		h.ch.Submit(b.CopyLines(push.HopperCopy, push.Surface{VA: h.loot}, push.Surface{VA: h.mine}, uint32(len(mark)), 1<<20).Words...)
		h.Wait("copy", func() bool { return !bytes.Equal(mark, h.ram) })
		require.NoError(h.t, raw.UnmapAll())
		copy(h.ram, mark)
		for range 8 { // round trips, in which engines work
			h.Write32(0xbb0090, 1)
			h.Read32(0)
		}
		if !bytes.Equal(mark, h.ram) {
			h.report("RAM has changed after it was unmapped")
		}
		_ = raw.Map(at&^0xfff, 0, 0x10000, client.ReadWrite) // where it may not be
		h.Read32(0)
		require.NoError(h.t, raw.UnmapAll())
		require.NoError(h.t, raw.Map(h.Base, 0, uint64(len(h.Driver.RAM)), client.ReadWrite))
		h.restart()
	}},
	{"roots", 12, func(h *hopperWard, at, word uint64, write bool) {
		h.Control(h.s.Client, deviceHandle, 0x801813, gh100.Fields{0: at, 8: word & 3, 0xc: word >> 1 & 3, 0x10: spaceHandle}.Bytes(0x20))
		h.use(h.mine, write)
	}},
	{"channels", 12, func(h *hopperWard, at, word uint64, write bool) {
		for _, field := range []int{8, 0x90, 0xa8, 0xc0, 0xd8} {
			p := gh100.Fields{8: h.loot, 0x10: 512, 0x14: 1 << 8 << 1, 0x1c: spaceHandle, 0x80: 1, 0x90: 1 << 20, 0xa0: 2, 0xa8: 2 << 20, 0xb8: word & 3}
			p[field] = at
			h.Alloc(h.s.Client, deviceHandle, 7, 0xc86f, p.Bytes(0x170))
			h.Control(h.s.Client, 7, 0xa06f0103, []byte{1, 0})
			h.Write32(0xbb0090, 2)
			h.Free(h.s.Client, 7)
		}
	}},
	{"windows", 12, func(h *hopperWard, at, word uint64, write bool) {
		h.Write32(0x10fd40, uint32(at>>16|word>>40))
		h.touch(0, 0x700000, write)
		h.touch(0, 0x7ff000, write)
		off := h.MapBAR1(1 << 20)
		for level := len(shadowpt.Hopper.Dirs); level >= 0; level-- {
			h.WriteVRAM(h.Window().Entry(level, off), binary.LittleEndian.AppendUint64(nil, word))
			h.s.Flush(7)
			h.touch(1, off, write)
		}
		h.Call(70, gh100.Fields{0: 1, 8: word, 0x10: 56}.Bytes(0x18))
		h.touch(3, 0, write)
	}},
	{"what channels are given", 12, func(h *hopperWard, at, word uint64, write bool) {
		var b push.Buffer
		b.HopperRelease(at, 1).Bind(push.HopperCopy).Inc(4, 0x260, uint32(word>>1&3), uint32(word>>1&3))
		b.Inc(4, 0x400, uint32(at>>32), uint32(at), uint32(h.loot>>32), uint32(h.loot), 4096, 4096, 4096, 1)
		for _, physical := range []uint32{1 << 12, 1 << 13, 3 << 12} {
			b.Inc(4, 0x300, 1<<8|1<<7|1<<2|2|physical)
		}
		_ = h.ch.Until(h.ch.Submit(b.Words...))
		h.ch.Push(at&(1<<40-1) | word&(0x1f<<10)<<32)
		for token := range uint32(64) {
			h.Write32(0xbb0090, token|uint32(word>>1&3)<<16)
		}
	}},
	{"registers", 12, func(h *hopperWard, at, word uint64, write bool) {
		rows := h.Endpoint.GPU.Registers().Rows()
		for i := range uint64(40) {
			r := rows[rand.Uint64N(uint64(len(rows)))].Reg
			h.Write32(uint64(r.Offset&^3), uint32(at>>(i%4*4)|word>>32))
			h.Read32(uint64(r.Offset &^ 3))
		}
	}},
}

// places are addresses of others' memory on the card, of the ends of the attacker's, and guesses.
func (h *hopperWard) places() []uint64 {
	own := h.Endpoint.Guest.VRAM()
	list := []uint64{0}
	if h.bystander != nil {
		list = append(list, h.bystander.Extents()[0].Card, h.free[0].Addr)
	}
	return append(list, h.GPUs[1].Guest.Extents()[0].Card, h.GPUs[2].Guest.Extents()[0].Card,
		own-gsp.Reserved, own-4096, own, own+4096, busWindow-4096, 1<<40-4096, 1<<52-4096)
}

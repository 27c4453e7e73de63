package isolation

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/hostile"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// targetCount is how many places there are.
const targetCount = 19

// busWindow is how much of a guest's bus the card reaches, of 32 guests on 40 bits.
const busWindow = 1 << 35

// targets are the addresses that an attacker tries: others' memory on the card, the ends of
// its own, and guesses.
func (w *Ward) targets() (list []hostile.Value) {
	for _, at := range []uint64{
		0, 0x10_0000, // the aggregator's own, if anything is
		w.bystander.Extents()[0].Card, w.free[0].Addr, w.GPUs[1].Guest.Extents()[0].Card,
		w.Endpoint.Guest.Extents()[0].Card + w.Endpoint.Guest.Extents()[0].Size, cardVRAM - 4096, cardVRAM,
		1 << 35, 1<<39 | 1<<20, 1<<40 - 4096,
	} {
		list = append(list, hostile.Value{Base: hostile.Zero, Off: int64(at)})
	}
	seam := w.Endpoint.Guest.Extents()[0]
	return append(list,
		hostile.Value{Off: int64(seam.Guest + seam.Size - shadowpt.BigPage/2)},
		hostile.Value{Off: busWindow - shadowpt.BigPage/2},
		hostile.Value{Base: hostile.VRAMEnd}, hostile.Value{Base: hostile.VRAMEnd, Off: -4096},
		hostile.Value{Base: hostile.VRAMEnd, Off: -64 << 10}, hostile.Value{Base: hostile.Hole}, hostile.Value{Base: hostile.RAMEnd}, hostile.Value{Base: hostile.RAMEnd, Off: -4096})
}

// with returns v shifted and with more bits.
func with(v hostile.Value, shift uint8, or uint64) hostile.Value {
	v.Shift, v.Or = shift, or
	return v
}

// Bits of page entries and directory entries.
const (
	peer, coherent, noncoherent = 1 << 33, 2 << 33, 3 << 33
	readOnly                    = 1 << 2
	supervisor                  = 1 << 1
	bigVRAM, bigSystem          = 1, 2
	smallVRAM, smallSystem      = 1 << 32, 2 << 32
)

// cases are the ways to others' memory. do tries one of them with the place at,
// writing or reading.
var cases = []struct {
	name string
	do   func(at hostile.Value, write bool, try func(hostile.Action))
}{
	{"VRAM through PRAMIN", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, or := range []uint64{0, 1 << 24, 2 << 24, 3 << 24, 0xfc000000} {
			try(hostile.Action{Kind: hostile.Window, V: with(at, 16, or), W: at, Write: write})
		}
		// Across the end of what the window shows, which may be the end of VRAM.
		try(hostile.Action{Kind: hostile.Window, V: with(at, 16, 0), W: at})
		for _, width := range []int{8, 16, 4096} {
			try(hostile.Action{Kind: hostile.Access, Off: 0x700000 + 0xfffc, Width: width, V: at, Write: write})
		}
	}},
	{"VRAM through BAR1 and BAR3 without tables", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for i, block := range []uint32{0x1704, 0x1714} {
			try(hostile.Action{Kind: hostile.Register, Reg: block, Write: true})
			try(hostile.Action{Kind: hostile.Access, Region: 1 + 2*i, Off: uint64(at.Off) & 0x3ff_fff8, Width: 8, V: at, Write: write})
		}
	}},
	{"BAR tables at a foreign instance block", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for i, block := range []uint32{0x1704, 0x1714} {
			try(hostile.Action{Kind: hostile.Register, Reg: block, V: with(at, 12, 1<<31), Write: true})
			try(hostile.Action{Kind: hostile.Access, Region: 1 + 2*i, Off: 0x1000, Width: 8, V: at, Write: write})
		}
	}},
	{"page entries", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, bits := range []uint64{0, peer, coherent, noncoherent, readOnly, supervisor, 1 << 3, 0xff << 36, 0x1ffff << 44, 1 << 35, 7 << 61} {
			try(hostile.Action{Kind: hostile.Entry, V: at, Bits: bits, Engine: guest.CE0, Write: write})
		}
	}},
	{"big page entries", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, bits := range []uint64{0, coherent, 0xff << 36} {
			for _, off := range []uint64{0, shadowpt.BigPage / 2, shadowpt.BigPage - 256} {
				try(hostile.Action{Kind: hostile.BigEntry, V: at, Bits: bits, Off: off, Engine: guest.CE0, Write: write})
			}
		}
	}},
	{"directory entries", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, bits := range []uint64{bigVRAM, smallVRAM, bigVRAM | smallVRAM, bigSystem, smallSystem, bigVRAM | smallSystem, smallVRAM | 3<<2, bigVRAM | 1<<2} {
			try(hostile.Action{Kind: hostile.Dir, V: at, W: at, Bits: bits, Engine: guest.CE1, Write: write})
		}
	}},
	{"instance blocks", func(at hostile.Value, write bool, try func(hostile.Action)) {
		shift := uint8(0)
		if write {
			shift = 12
		}
		for word := range uint64(21) {
			try(hostile.Action{
				Kind: hostile.Block, V: with(at, shift, 0), W: at, Off: word, Words: []uint32{uint32(word & 3)},
				Chan: int(3 + word), Bits: word & 7, Write: write && word&1 != 0,
			})
		}
	}},
	{"GPFIFO entries and GP_PUT", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, bits := range []uint64{1 << 42, 16 << 42, 1 << 40, 1 << 41, 1 << 63, 0x1fffff << 42} {
			try(hostile.Action{Kind: hostile.Ring, V: at, Bits: bits, W: at, Chan: 1, Write: write})
		}
	}},
	{"semaphores, M2MF and copy engines", func(at hostile.Value, _ bool, try func(hostile.Action)) {
		for _, e := range guest.CopyEngines {
			for _, op := range []uint64{2, 1, 4, 8, 2 | 1<<24, 15} {
				try(hostile.Action{Kind: hostile.Engine, V: at, W: at, Engine: e, Bits: op<<32 | 0x1000, Off: 0x100})
			}
		}
	}},
	{"other channels' numbers", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for id := range uint32(gf100.Channels) {
			for _, r := range []struct{ reg, v uint32 }{
				{0x3000 + id*8, 0}, {0x3004 + id*8, 0x1f0001}, {0x3004 + id*8, 0}, {0x2634, id}, {0x2634, id | 1<<24},
				{0x40120, id}, {0x42120, id}, {0x44120, id}, {0x262c, ^uint32(0)},
				{0x2640 + id%gf100.Engines*4, 1<<31 | id}, {0x2a30 + id%gf100.Engines*4, 1<<8 | id}, {0x2a30, 1<<8 | id},
				{0x400700, id}, {0x409500, id}, {0x409504, 3}, {0x104050, 1<<30 | id}, {0x105050, 1<<30 | id},
			} {
				try(hostile.Action{Kind: hostile.Register, Reg: r.reg, V: hostile.Value{Off: int64(r.v)}, Write: true})
			}
			try(hostile.Action{Kind: hostile.Access, Region: 1, Off: uint64(id)*gf100.USERDSize + gf100.USERDGPPut, Width: 4, V: at, Write: write})
		}
	}},
	{"runlists", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, or := range []uint64{0, 2 << 28, 3 << 28, 1 << 28} {
			try(hostile.Action{Kind: hostile.List, V: with(at, 12, or), W: hostile.Value{Off: 0x1f00fff}, Words: []uint32{4}})
		}
		for _, first := range []uint64{0, 64, 100, 0xffffff00} {
			try(hostile.Action{Kind: hostile.List, Bits: first, Words: []uint32{4, 0xffffffff}, Write: write})
		}
	}},
	{"tables that change while they are read", func(at hostile.Value, _ bool, try func(hostile.Action)) {
		for _, bits := range []uint64{0, coherent} {
			try(hostile.Action{Kind: hostile.Tables, V: at, Bits: bits, Engine: guest.M2MF})
		}
	}},
	{"RAM at bus addresses of others", func(at hostile.Value, write bool, try func(hostile.Action)) {
		for _, off := range []uint64{0, shadowpt.BigPage - 256} {
			try(hostile.Action{Kind: hostile.Elsewhere, V: at, Off: off, Engine: guest.CE0, Write: write})
		}
	}},
	{"RAM while it is unmapped, and after", func(at hostile.Value, _ bool, try func(hostile.Action)) {
		try(hostile.Action{Kind: hostile.Unmap, V: at})
	}},
}

// try tries a case at a place.
func (w *Ward) try(t *testing.T, i, target int) {
	targets := w.targets()
	require.Len(t, targets, targetCount)
	c, at := &cases[i], targets[target]
	t.Run(c.name, func(t *testing.T) {
		before := w.Copies()
		require.NoError(t, w.Attacker.Restart())
		for _, write := range []bool{false, true} {
			c.do(at, write, func(act hostile.Action) { require.NoError(t, w.Attacker.Do(act)) })
		}
		require.Empty(t, w.Violations())
		// They share the processors: the victim may be slow, not stopped.
		require.Eventually(t, func() bool { return w.Copies() > before }, wait, time.Millisecond)
	})
}

// widths of accesses, odd ones too.
var widths = []int{4, 1, 2, 8, 3, 16}

// TestGateRegisters writes and reads every declared register, and some between
// them, in every width.
func TestGateRegisters(t *testing.T) {
	w := ward(t)
	rng := rand.New(rand.NewPCG(3, 4))
	targets := w.targets()
	for i, off := range registers() {
		for _, width := range widths {
			v := with(targets[rng.IntN(len(targets))], uint8(rng.IntN(4)*4), rng.Uint64()&rng.Uint64()&rng.Uint64())
			for _, write := range []bool{true, false} {
				require.NoError(t, w.Attacker.Do(hostile.Action{
					Kind: hostile.Access, Off: uint64(off) &^ uint64(width&-width-1), Width: width, V: v, Write: write,
				}))
			}
		}
		if i%2000 == 0 {
			require.NoError(t, w.Attacker.Restart())
		}
	}
	require.Empty(t, w.Violations())
	require.NoError(t, w.Attacker.Restart())
}

// TestGateOffsets writes and reads at every offset of the registers, in the release
// suite. It calls the device: a message for each would take minutes.
func TestGateOffsets(t *testing.T) {
	w := ward(t)
	rng := rand.New(rand.NewPCG(5, 6))
	targets := w.targets()
	got := make([]byte, 64<<10)
	step := scale.Of[uint64](13, 1) // those that mean something are registers, see TestGateRegisters
	for off := uint64(0); off < gf100.SpaceSize; off += 4 * step {
		width := widths[0]
		if rng.IntN(4) == 0 {
			width = widths[rng.IntN(len(widths))]
		}
		at := off + rng.Uint64()&3&uint64(-width)
		var p [24]byte
		binary.LittleEndian.PutUint64(p[:], uint64(targets[rng.IntN(len(targets))].Off)>>(rng.IntN(4)*4)|rng.Uint64()&rng.Uint64()&rng.Uint64())
		n := min(width, int(gf100.SpaceSize-at))
		require.NoError(t, w.Endpoint.WriteRegion(0, at, p[:n]))
		in := off / 4 * 16 % uint64(len(got)-16)
		require.NoError(t, w.Endpoint.ReadRegion(0, at, got[in:][:n]))
		if off/4/step%4096 == 0 {
			w.look(fmt.Sprintf("read before %06x", off), got)
		}
	}
	require.Empty(t, w.Violations())
	require.NoError(t, w.Attacker.Restart())
}

// registers returns the offsets of declared registers, a few of each array, and
// some that are not declared.
func registers() (list []uint32) {
	const few = 3
	for _, b := range gf100.Blocks() {
		for i := range b.Regs {
			list = append(list, instances(&b.Regs[i], few)...)
		}
	}
	for off := uint32(0); off < gf100.SpaceSize; off += 0x3ffc {
		list = append(list, off)
	}
	return list
}

func instances(r *mmio.Reg, few int) (list []uint32) {
	list = []uint32{r.Offset}
	for _, d := range r.Rep {
		for _, base := range list {
			for i := 1; i < min(d.Count, few); i++ {
				list = append(list, base+uint32(i)*d.Stride)
			}
		}
	}
	return list
}

package windows

import (
	"encoding/binary"
	"fmt"

	devgh100 "github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	chipgh100 "github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// layout is what differs between chips and is a number.
type layout struct {
	vram   uint64
	format *shadowpt.Format
	window uint64 // the register that points PRAMIN: an address >> 16
	blocks []mmio.Block
}

var (
	layoutGF100 = layout{rig.Fermi.VRAM, shadowpt.Fermi, 0x1700, gf100.Blocks()}
	layoutGH100 = layout{rig.Hopper.VRAM, shadowpt.Hopper, 0x10fd40, chipgh100.Blocks()}
)

// chip is what differs and a driver does.
type chip interface {
	// boot starts a driver after a reset.
	boot()
	// build makes a BAR's tables, and turn switches the BAR on or off.
	build(b *bar)
	turn(b *bar, on bool)
	// name says whose entries the next invalidate makes count. They do when shown says so.
	name(b *bar)
	invalidate(all bool)
	shown() bool
	// interrupt raises one.
	interrupt()
}

type fermi struct{ *side }

func (f fermi) boot() {}

func (f fermi) build(b *bar) {
	inst := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(inst, uint32(b.dir>>12))
	gf100.InstLimitLo.Put(inst, 0xfffff)
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: b.table}}.Encode()
	f.poke(b.inst+0x200, inst[0x200:0x210])
	f.poke(b.dir, binary.LittleEndian.AppendUint64(nil, pde))
	f.barrier()
}

func (f fermi) turn(b *bar, on bool) {
	v := uint32(b.inst >> 12)
	if on {
		v |= 1 << 31
	}
	f.wr(map[int]uint64{1: 0x1704, 3: 0x1714}[b.index], v)
}

func (f fermi) name(b *bar) { f.wr(0x100cb8, uint32(b.dir>>12<<4)) }
func (f fermi) shown() bool { return f.rd(0x100c80)&(1<<15) != 0 }

func (f fermi) invalidate(all bool) {
	command := uint32(gf100.InvalidateGo | gf100.InvalidateAllPages)
	if all {
		command |= gf100.InvalidateAllDirs
	}
	f.wr(0x100cbc, command)
}

func (f fermi) interrupt() { f.wr(0x100, 1<<31) }

type hopper struct {
	*side
	ram    []byte // of the driver
	driver *gh100.Driver
}

// ramBase is where the driver has RAM on the bus: no page of the tests is there.
const ramBase = 1 << 34

func (h *hopper) boot() {
	h.driver = &gh100.Driver{Bus: h.function, RAM: h.ram, Base: ramBase, Timeout: patience, Fail: func(why ...any) { panic(fmt.Sprint(why...)) }}
	h.driver.Boot()
}

// directory is an entry that names a table.
func directory(l *shadowpt.Level, table uint64, on bool) (p []byte) {
	w := l.Encode(shadowpt.PDE{Small: shadowpt.Table{Present: on, Addr: table}})
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, w[0]), w[1])
}

func (h *hopper) build(b *bar) {
	dirs := shadowpt.Hopper.Dirs
	for i := 1; i < len(dirs); i++ {
		at, next := b.dir+uint64(i-1)*page, b.dir+uint64(i)*page
		if i == len(dirs)-1 {
			next = b.table
		}
		h.poke(at, directory(&dirs[i], next, true))
	}
	h.barrier()
}

func (h *hopper) turn(b *bar, on bool) {
	entry := directory(&shadowpt.Hopper.Dirs[0], b.dir, on)[:8]
	if b.index == 3 {
		h.driver.Call(70, gh100.Fields{0: 1, 8: binary.LittleEndian.Uint64(entry), 0x10: 56}.Bytes(0x18))
		return
	}
	was := h.rd(h.window)
	h.poke(gsp.BAR1Root(h.vram), entry)
	h.wr(h.window, was)
	h.name(b)
	for h.invalidate(false); !h.shown(); {
	}
}

func (h *hopper) name(b *bar) {
	root := map[int]uint64{1: gsp.BAR1Root(h.vram), 3: gsp.BAR2Root(h.vram)}[b.index]
	h.wr(0xb830a0, uint32(root>>8))
	h.wr(0xb830a4, uint32(root>>40))
}

func (h *hopper) shown() bool { return h.rd(0xb830b0)>>31 == 0 }

func (h *hopper) invalidate(all bool) {
	command := uint32(chipgh100.InvalidateTrigger | 1)
	if all {
		command |= chipgh100.InvalidateAllDirs
	}
	h.wr(0xb830b0, command)
}

func (h *hopper) interrupt() { h.function.(*devgh100.VGPU).Completed(0) }

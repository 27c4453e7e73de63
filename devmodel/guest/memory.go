package guest

import (
	"encoding/binary"
	"fmt"

	"github.com/umbra-gpu/umbra/shadowpt"
)

var le = binary.LittleEndian

// Buffer is memory that the GPU can be given: VRAM, or pages of the guest's RAM.
type Buffer struct {
	Addr uint64 // in VRAM, or on the bus
	Size uint64
	RAM  bool
	Data []byte // of RAM; VRAM has none

	g     *Guest
	bar1  uint64 // where BAR1 shows it
	shown bool
}

// AllocVRAM takes n bytes of VRAM, cleared, at a multiple of the page size that
// fits them: 128 KiB for buffers that large.
func (g *Guest) AllocVRAM(n uint64) (*Buffer, error) {
	align := uint64(pageSize)
	if n >= shadowpt.BigPage {
		align = shadowpt.BigPage
	}
	return g.allocVRAM(n, align, false)
}

func (g *Guest) allocVRAM(n, align uint64, top bool) (*Buffer, error) {
	n = pages(n)
	addr, fresh, ok := g.vram.alloc(n, align, top)
	if !ok || n == 0 {
		return nil, fmt.Errorf("guest: no room for %d bytes in %d MiB of VRAM", n, g.vramSize>>20)
	}
	b := &Buffer{Addr: addr, Size: n, g: g}
	if g.cfg.Clear || !fresh {
		if err := b.Write(0, make([]byte, n)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// AllocRAM takes n bytes of the guest's RAM, cleared.
func (g *Guest) AllocRAM(n uint64) (*Buffer, error) {
	n = pages(n)
	off, _, ok := g.ramHeap.alloc(n, pageSize, false)
	if !ok || n == 0 {
		return nil, fmt.Errorf("guest: no room for %d bytes in %d MiB of RAM", n, g.cfg.RAM>>20)
	}
	b := &Buffer{Addr: g.cfg.RAMBase + off, Size: n, RAM: true, Data: g.mem.Data[off:][:n], g: g}
	clear(b.Data)
	return b, nil
}

// Free frees a buffer. It must not be mapped any more.
func (b *Buffer) Free() error {
	if b.RAM {
		b.g.ramHeap.release(b.Addr-b.g.cfg.RAMBase, b.Size)
		return nil
	}
	if err := b.Hide(); err != nil {
		return err
	}
	b.g.vram.release(b.Addr, b.Size)
	return nil
}

func (b *Buffer) check(off uint64, n int) error {
	if off > b.Size || uint64(n) > b.Size-off {
		return fmt.Errorf("guest: %d bytes at %#x of a buffer of %d", n, off, b.Size)
	}
	return nil
}

// Write stores p at off: in RAM directly, in VRAM through BAR1.
func (b *Buffer) Write(off uint64, p []byte) error {
	if err := b.check(off, len(p)); err != nil {
		return err
	}
	if b.RAM {
		copy(b.Data[off:], p)
		return nil
	}
	if b.g.viaPRAMIN() {
		b.g.praminWrite(b.Addr+off, p)
		return b.g.bus.failed()
	}
	if err := b.show(); err != nil {
		return err
	}
	b.g.bus.write(bar1, b.bar1+off, p)
	return b.g.bus.failed()
}

// Read fills p from off, after everything written before.
func (b *Buffer) Read(off uint64, p []byte) error {
	if err := b.check(off, len(p)); err != nil {
		return err
	}
	if b.RAM {
		copy(p, b.Data[off:])
		return nil
	}
	if b.g.viaPRAMIN() {
		b.g.praminRead(b.Addr+off, p)
		return b.g.bus.failed()
	}
	if err := b.show(); err != nil {
		return err
	}
	b.g.bus.read(bar1, b.bar1+off, p)
	return b.g.bus.failed()
}

// BAR1 maps the buffer in BAR1 and returns its offset there.
func (b *Buffer) BAR1() (uint64, error) { return b.bar1, b.show() }

// BAR3 maps the buffer in BAR3, where drivers have their instance memory, as well, and
// returns its offset there and what takes it away again. A driver that reaches memory
// through PRAMIN alone has no BAR3; nothing happens.
func (b *Buffer) BAR3() (off uint64, hide func() error, err error) {
	if b.g.win3 == nil {
		return 0, func() error { return nil }, nil
	}
	off, err = b.g.win3.show(b.Addr, b.Size)
	return off, func() error { return b.g.win3.hide(off, b.Size) }, err
}

func (b *Buffer) show() (err error) {
	if b.shown {
		return nil
	}
	b.bar1, err = b.g.win1.show(b.Addr, b.Size)
	b.shown = err == nil
	return err
}

// Hide takes the buffer out of BAR1, until it is read or written again.
func (b *Buffer) Hide() error {
	if !b.shown {
		return nil
	}
	b.shown = false
	return b.g.win1.hide(b.bar1, b.Size)
}

// object is instance memory: what the GPU itself reads to find everything else.
type object struct {
	addr, size uint64
	bar3       uint64
	shown      bool
}

// newObject takes n bytes of instance memory, cleared.
func (g *Guest) newObject(n uint64) (*object, error) {
	n = pages(n)
	addr, fresh, ok := g.vram.alloc(n, pageSize, true)
	if !ok {
		return nil, fmt.Errorf("guest: no room for %d bytes of instance memory in %d MiB of VRAM", n, g.vramSize>>20)
	}
	o := &object{addr: addr, size: n}
	if !g.viaPRAMIN() && g.win3 != nil {
		var err error
		if o.bar3, err = g.win3.show(addr, n); err != nil {
			return nil, err
		}
		o.shown = true
	}
	if g.cfg.Clear || !fresh {
		g.objectWrite(o, 0, make([]byte, n))
	}
	return o, nil
}

func (g *Guest) freeObject(o *object) error {
	if o == nil {
		return nil
	}
	if o.shown {
		o.shown = false
		if err := g.win3.hide(o.bar3, o.size); err != nil {
			return err
		}
	}
	g.vram.release(o.addr, o.size)
	return nil
}

func (g *Guest) objectWrite(o *object, off uint64, p []byte) {
	if o.shown {
		g.bus.write(bar3, o.bar3+off, p)
		return
	}
	g.praminWrite(o.addr+off, p)
}

func (g *Guest) objectRead(o *object, off uint64, p []byte) {
	if o.shown {
		g.bus.read(bar3, o.bar3+off, p)
		return
	}
	g.praminRead(o.addr+off, p)
}

// viaPRAMIN reports whether memory is reached through PRAMIN alone.
func (g *Guest) viaPRAMIN() bool { return g.cfg.PRAMIN || g.win1 == nil }

func (g *Guest) praminWrite(addr uint64, p []byte) {
	for len(p) > 0 {
		off, n := g.praminMove(addr, len(p))
		g.bus.write(bar0, off, p[:n])
		addr, p = addr+uint64(n), p[n:]
	}
}

func (g *Guest) praminRead(addr uint64, p []byte) {
	for len(p) > 0 {
		off, n := g.praminMove(addr, len(p))
		g.bus.read(bar0, off, p[:n])
		addr, p = addr+uint64(n), p[n:]
	}
}

// praminMove moves the window over addr. It returns the BAR0 offset and how many of n
// bytes the window shows. The window is written each time: others may move it.
func (g *Guest) praminMove(addr uint64, n int) (uint64, int) {
	base := addr &^ (praminSize - 1)
	g.wr32(pbusWindow, uint32(base>>16))
	in := addr - base
	return pramin + in, int(min(uint64(n), praminSize-in))
}

// Instance is instance memory of the driver's own: VRAM that it reaches through
// BAR3, as nouveau does with what it saves when it suspends.
type Instance struct {
	g *Guest
	o *object
}

// NewInstance takes n bytes of instance memory, cleared.
func (g *Guest) NewInstance(n uint64) (*Instance, error) {
	o, err := g.newObject(n)
	if err != nil {
		return nil, err
	}
	return &Instance{g, o}, g.bus.failed()
}

func (i *Instance) check(off uint64, n int) error {
	if off > i.o.size || uint64(n) > i.o.size-off {
		return fmt.Errorf("guest: %d bytes at %#x of %d bytes of instance memory", n, off, i.o.size)
	}
	return nil
}

// Write stores p at off.
func (i *Instance) Write(off uint64, p []byte) error {
	if err := i.check(off, len(p)); err != nil {
		return err
	}
	i.g.objectWrite(i.o, off, p)
	return i.g.bus.failed()
}

// Read fills p from off, after everything written before.
func (i *Instance) Read(off uint64, p []byte) error {
	if err := i.check(off, len(p)); err != nil {
		return err
	}
	i.g.objectRead(i.o, off, p)
	return i.g.bus.failed()
}

// BAR3 returns where BAR3 shows the memory.
func (i *Instance) BAR3() uint64 { return i.o.bar3 }

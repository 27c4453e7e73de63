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
	bar   int    // the window of VRAM: BAR1, or BAR3 for what the GPU itself reads to find the rest
	at    uint64 // where the window shows it
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
	b := &Buffer{Addr: addr, Size: n, g: g, bar: bar1}
	return b, b.clear(fresh)
}

// newInstance takes n bytes of instance memory, cleared. BAR3 shows it from the start, once there
// is a BAR3: the tables of the windows themselves are never shown.
func (g *Guest) newInstance(n uint64) (*Buffer, error) {
	n = pages(n)
	addr, fresh, ok := g.vram.alloc(n, pageSize, true)
	if !ok {
		return nil, fmt.Errorf("guest: no room for %d bytes of instance memory in %d MiB of VRAM", n, g.vramSize>>20)
	}
	b := &Buffer{Addr: addr, Size: n, g: g, bar: bar3}
	if !g.viaPRAMIN() {
		if err := b.show(); err != nil {
			return nil, err
		}
	}
	return b, b.clear(fresh)
}

// clear clears VRAM that is not fresh: a reset has cleared the rest.
func (b *Buffer) clear(fresh bool) error {
	if fresh {
		return nil
	}
	return b.Write(0, make([]byte, b.Size))
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
	if b.shown {
		b.shown = false
		if err := b.window().hide(b.at, b.Size); err != nil {
			return err
		}
	}
	b.g.vram.release(b.Addr, b.Size)
	return nil
}

// Write stores p at off: in RAM directly, in VRAM through a window.
func (b *Buffer) Write(off uint64, p []byte) error {
	pramin, err := b.access(off, len(p))
	switch {
	case err != nil:
		return err
	case b.RAM:
		copy(b.Data[off:], p)
		return nil
	case pramin:
		b.g.praminWrite(b.Addr+off, p)
	default:
		b.g.bus.write(b.bar, b.at+off, p)
	}
	return b.g.bus.failed()
}

// Read fills p from off, after everything written before.
func (b *Buffer) Read(off uint64, p []byte) error {
	pramin, err := b.access(off, len(p))
	switch {
	case err != nil:
		return err
	case b.RAM:
		copy(p, b.Data[off:])
		return nil
	case pramin:
		b.g.praminRead(b.Addr+off, p)
	default:
		b.g.bus.read(b.bar, b.at+off, p)
	}
	return b.g.bus.failed()
}

// access prepares an access of n bytes at off, and reports whether it goes through PRAMIN. VRAM is
// shown in BAR1 when it is first accessed.
func (b *Buffer) access(off uint64, n int) (pramin bool, err error) {
	if off > b.Size || uint64(n) > b.Size-off {
		return false, fmt.Errorf("guest: %d bytes at %#x of a buffer of %d", n, off, b.Size)
	}
	if b.RAM || b.g.viaPRAMIN() {
		return true, nil
	}
	if b.bar == bar1 {
		err = b.show()
	}
	return !b.shown, err
}

func (b *Buffer) window() *window {
	if b.bar == bar3 {
		return b.g.win3
	}
	return b.g.win1
}

func (b *Buffer) show() (err error) {
	if b.shown {
		return nil
	}
	b.at, err = b.window().show(b.Addr, b.Size)
	b.shown = err == nil
	return err
}

// BAR1 maps the buffer in BAR1 and returns its offset there.
func (b *Buffer) BAR1() (uint64, error) {
	err := b.show()
	return b.at, err
}

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

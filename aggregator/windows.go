package aggregator

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// windows are a guest's own views of its memory: BAR1 and BAR3 through page
// tables, PRAMIN through a base register. They walk the guest's tables as the
// guest wrote them and go through its extents, so nothing of the card's is in
// reach. Guarded by the virtual GPU's lock.
type windows struct {
	guest *Guest
	bar1  barWindow
	bar3  barWindow
}

// barWindow is BAR1 or BAR3.
type barWindow struct {
	guest             *Guest
	unit              uint8 // MMU fault slot
	readBy, writtenBy uint8 // MMU client numbers
	virtual           bool
	on                bool // there are tables
	kind              aperture.Kind
	inst              uint64
	tlb               shadowpt.TLB
}

const (
	faultWrite = 1 << 7
	faultHub   = 1 << 6
)

func (w *windows) init(g *Guest) {
	w.guest = g
	w.bar1 = barWindow{guest: g, kind: aperture.BAR1, unit: 0x04, readBy: 0x07, writtenBy: 0x08}
	w.bar3 = barWindow{guest: g, kind: aperture.BAR3, unit: 0x05, readBy: 0x07, writtenBy: 0x08}
}

func (w *windows) bar(i int) *barWindow {
	if i == card.BAR1 {
		return &w.bar1
	}
	return &w.bar3
}

// block acts on a write of the window's block register.
func (w *barWindow) block(v uint32) {
	w.virtual = v&gf100.BlockVirtual != 0
	w.inst = uint64(v&gf100.BlockAddr) << 12
	block := make([]byte, gf100.InstanceSize)
	on := w.virtual && w.guest.read(shadowpt.VRAM, w.inst, block)
	if on {
		w.tlb.Bind(channel.ReadSpace(block))
	} else {
		w.tlb.Bind(shadowpt.Space{})
	}
	w.on = on
	w.show()
}

// Read64 implements shadowpt.Memory for the guest's own tables.
func (w *barWindow) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	var b [8]byte
	ok := w.guest.read(t, addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), ok
}

// SetBlock acts on a write of NV_PBUS_BAR1_BLOCK (bar 1) or BAR2_BLOCK (bar 3).
func (g *Guest) SetBlock(bar int, v uint32) { g.windows.bar(bar).block(v) }

// ReadBAR reads through BAR1 or BAR3. Bytes after a fault read as ones.
func (g *Guest) ReadBAR(bar int, off uint64, p []byte) (gf100.MMUFault, bool) {
	return g.windows.bar(bar).access(off, p, false)
}

// WriteBAR writes through BAR1 or BAR3.
func (g *Guest) WriteBAR(bar int, off uint64, p []byte) (gf100.MMUFault, bool) {
	return g.windows.bar(bar).access(off, p, true)
}

// access moves p to or from the memory at off. It returns the fault that ended
// it, and whether there was none.
func (w *barWindow) access(off uint64, p []byte, write bool) (f gf100.MMUFault, ok bool) {
	g := w.guest
	if !w.virtual {
		if !g.eachRun(off, p, write) {
			return w.fault(off, p, write, shadowpt.PageNotPresent), false
		}
		return f, true
	}
	for len(p) > 0 {
		pte, end, reason, found := w.tlb.Lookup(w, off)
		switch {
		case !found:
			return w.fault(off, p, write, reason), false
		case write && pte.ReadOnly:
			return w.fault(off, p, write, shadowpt.PageReadOnly), false
		}
		n := min(uint64(len(p)), end-off)
		if !g.move(pte.Target, pte.Addr, p[:n], write) {
			return w.fault(off, p, write, shadowpt.PageNotPresent), false
		}
		off += n
		p = p[n:]
	}
	return f, true
}

func (w *barWindow) fault(off uint64, p []byte, write bool, r shadowpt.Reason) gf100.MMUFault {
	w.guest.stats.WindowFaults.Add(1)
	info := uint32(r) | faultHub
	client := w.readBy
	if write {
		info |= faultWrite
		client = w.writtenBy
	} else {
		fill(p)
	}
	return gf100.MMUFault{Unit: w.unit, Inst: w.inst, VA: off, Info: info | uint32(client)<<8}
}

func fill(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}

// pramin returns where off of the PRAMIN window lies, by NV_PBUS_BAR0_WINDOW.
func pramin(win, off uint32) (shadowpt.Target, uint64) {
	return shadowpt.Target(win >> 24 & 3), uint64(win&0xffffff)<<16 + uint64(off)
}

// ReadPRAMIN reads through the PRAMIN window, whose register holds win. Bytes
// outside the guest's memory read as ones and are counted.
func (g *Guest) ReadPRAMIN(win, off uint32, p []byte) {
	t, addr := pramin(win, off)
	if !g.move(t, addr, p, false) {
		g.stats.BadWindow.Add(1)
		fill(p)
	}
}

// WritePRAMIN writes through the PRAMIN window.
func (g *Guest) WritePRAMIN(win, off uint32, p []byte) {
	t, addr := pramin(win, off)
	if !g.move(t, addr, p, true) {
		g.stats.BadWindow.Add(1)
	}
}

package gh100

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	chip "github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// lastAddress is the last of an address space.
var lastAddress = shadowpt.Hopper.VASize() - 1

// showWindows shows what the windows have before a driver comes: BAR1's root is GSP's and always there.
func (f *Face) showWindows() {
	f.show(card.BAR1, gsp.BAR1Root(f.guest.Memory().Size()))
	f.guest.ShowBAR(card.BAR3, true, nil)
}

func (f *Face) show(bar int, root uint64) {
	f.guest.ShowBAR(bar, true, &shadowpt.Space{Dir: root, Target: shadowpt.VRAM, Limit: lastAddress})
}

// SetBAR2 implements gsp.Host. A driver uses the window as soon as it has GSP's reply, which it looks for
// without an access, so all pages are moved here: at most twice as many as the window has.
func (f *Face) SetBAR2(entry uint64) {
	root := gsp.BAR2Root(f.guest.Memory().Size())
	f.guest.WriteAt(shadowpt.VRAM, root, binary.LittleEndian.AppendUint64(nil, entry))
	if entry == 0 {
		f.guest.ShowBAR(card.BAR3, true, nil)
		return
	}
	f.show(card.BAR3, root)
	for range 2 * chip.BAR3Size / shadowpt.SmallPage {
		if f.guest.Shown() {
			break
		}
		f.guest.Access()
	}
}

// Invalidate implements the interface of the virtual GPU.
func (f *Face) Invalidate(root uint64, in gsp.Target, all bool) {
	f.guest.Invalidate(shadow.Key{Dir: root, Target: targets[in]}, all)
}

// Invalidated implements the interface of the virtual GPU.
func (f *Face) Invalidated() bool { return !f.guest.Pending().Invalidate && f.guest.Shown() }

// Read and Write implement gsp.Memory: they access the guest's own memory.
func (f *Face) Read(addr uint64, p []byte) bool {
	return f.guest.Memory().Read(shadowpt.SystemCoherent, addr, p)
}

func (f *Face) Write(addr uint64, p []byte) bool {
	return f.guest.Memory().Write(shadowpt.SystemCoherent, addr, p)
}

// The others pass an access on. An access through a window that no page answers reads as ones, and is
// counted: the chip reports it nowhere that a driver looks.

func (f *Face) ReadVRAM(addr uint64, p []byte)         { f.guest.ReadAt(shadowpt.VRAM, addr, p) }
func (f *Face) WriteVRAM(addr uint64, p []byte)        { f.guest.WriteAt(shadowpt.VRAM, addr, p) }
func (f *Face) PointPRAMIN(addr uint64)                { f.guest.PointPRAMIN(shadowpt.VRAM, addr) }
func (f *Face) ReadBAR(bar int, off uint64, p []byte)  { f.guest.ReadBAR(bar, off, p) }
func (f *Face) WriteBAR(bar int, off uint64, p []byte) { f.guest.WriteBAR(bar, off, p) }
func (f *Face) MemoryBarrier()                         { f.guest.MemoryBarrier() }
func (f *Face) Access()                                { f.guest.Access() }

package gh100

import (
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gh100"
)

// BARSize returns a BAR's size in bytes, 0 if there is no such BAR.
func (v *VGPU) BARSize(bar int) uint64 { return v.pci.BARSize(bar) }

// ConfigSize is the size of the configuration space in bytes.
func (v *VGPU) ConfigSize() uint64 { return uint64(v.pci.Size()) }

// ReadConfig serves a read of the configuration space.
func (v *VGPU) ReadConfig(off uint32, p []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pci.Read(off, p)
}

// WriteConfig serves a write to the configuration space.
func (v *VGPU) WriteConfig(off uint32, p []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pci.Write(off, p)
	v.settle()
}

// ReadBAR serves a guest's read. Bytes that nothing answers read as ones.
func (v *VGPU) ReadBAR(bar int, off uint64, p []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch bar {
	case devmodel.BAR0:
		v.beginAccess(off, len(p), mmio.BarrierRead)
		v.sp.Read(uint32(off), p)
		v.settle()
	case devmodel.BAR1, devmodel.BAR3:
		v.card.ReadBAR(bar, off, p)
	default:
		for i := range p {
			p[i] = 0xff
		}
	}
}

// WriteBAR serves a guest's write.
func (v *VGPU) WriteBAR(bar int, off uint64, p []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch bar {
	case devmodel.BAR0:
		v.beginAccess(off, len(p), mmio.BarrierWrite)
		v.sp.Write(uint32(off), p)
		v.settle()
	case devmodel.BAR1, devmodel.BAR3:
		v.card.WriteBAR(bar, off, p)
	}
}

// beginAccess is called before an access of BAR0.
func (v *VGPU) beginAccess(off uint64, n int, b mmio.Barrier) {
	if gh100.InPRAMIN(off, n) {
		return
	}
	v.card.Access()
	if v.sp.Barrier(off, n, b) {
		v.card.MemoryBarrier()
	}
}

// pramin is where PRAMIN lies in VRAM.
func (v *VGPU) pramin() uint64 { return uint64(v.window.Get()) << 16 }

// bind binds the rows of memory, translation and the doorbells.
func (v *VGPU) bind(b *mmio.Bindings) {
	b.OnWindow("PRAMIN", mmio.Window{
		Read:  func(off uint32, p []byte) { v.card.ReadVRAM(v.pramin()+uint64(off), p) },
		Write: func(off uint32, p []byte) { v.card.WriteVRAM(v.pramin()+uint64(off), p) },
	})
	b.OnWrite("NV_XAL_EP_BAR0_WINDOW", func(int, mmio.Write) { v.card.PointPRAMIN(v.pramin()) })
	b.On("NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE", mmio.Hooks{
		Read: func(_ int, r uint32) uint32 {
			if v.card.Invalidated() {
				return r &^ gh100.InvalidateTrigger
			}
			return r | gh100.InvalidateTrigger
		},
		Write: func(_ int, w mmio.Write) { v.invalidate(w.New) },
	})
	b.OnWrite("NV_VIRTUAL_FUNCTION_DOORBELL", func(_ int, w mmio.Write) { v.ring(w.Data) })
	b.OnWrite("NV_PGSP_QUEUE_HEAD", func(int, mmio.Write) { v.kick() })
}

func (v *VGPU) invalidate(command uint32) {
	if command&gh100.InvalidateTrigger == 0 {
		return
	}
	root, system := gh100.Directory(v.lowerPDB.Get(), v.upperPDB.Get())
	in := gsp.TargetVRAM
	if system {
		in = gsp.TargetRAM
	}
	v.card.Invalidate(root, in, command&gh100.InvalidateAllDirs != 0)
}

// ring submits the work of the channel that a token names.
func (v *VGPU) ring(token uint32) {
	if id, there := v.gsp.ChannelOf(token); there {
		v.card.Doorbell(id)
		return
	}
	v.count(RuleDoorbell, &v.errors.Tokens, "the driver rings for token %#x, which no channel has", token)
}

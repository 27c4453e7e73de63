package gh100

import (
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gh100"
)

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
	v.broke(RuleDoorbell, "the driver rings for token %#x, which no channel has", token)
}

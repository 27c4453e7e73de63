package gf100

import (
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
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
		v.before(off, len(p), mmio.BarrierRead)
		v.sp.Read(uint32(off), p)
		v.settle()
	case devmodel.BAR1:
		if id, _, hit := v.fifo.poll(off, len(p)); hit {
			v.card.Channel(id, Refresh, 0)
		}
		v.window(v.card.Read(WindowBAR1, off, p))
	case devmodel.BAR3:
		v.window(v.card.Read(WindowBAR3, off, p))
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
		v.before(off, len(p), mmio.BarrierWrite)
		v.sp.Write(uint32(off), p)
		v.settle()
	case devmodel.BAR1:
		id, doorbell, _ := v.fifo.poll(off, len(p))
		v.window(v.card.Write(WindowBAR1, off, p))
		if doorbell {
			v.card.Channel(id, Doorbell, 0)
		}
	case devmodel.BAR3:
		v.window(v.card.Write(WindowBAR3, off, p))
	}
}

// before is called before an access of BAR0.
func (v *VGPU) before(off uint64, n int, b mmio.Barrier) {
	if gf100.InPRAMIN(off, n) {
		return
	}
	v.card.Access()
	if v.sp.Barrier(off, n, b) {
		v.card.MemoryBarrier()
	}
}

// window reports a window's fault to the guest, if there was one.
func (v *VGPU) window(f gf100.MMUFault, ok bool) {
	if !ok {
		v.fifo.Fault(f)
		v.settle()
	}
}

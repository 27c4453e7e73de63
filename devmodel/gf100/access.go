package gf100

import (
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// windowOf are the windows of BARs.
var windowOf = [...]Window{devmodel.BAR1: WindowBAR1, devmodel.BAR3: WindowBAR3}

// readBAR reads through BAR1 or BAR3.
func (v *VGPU) readBAR(bar int, off uint64, p []byte) {
	if bar == devmodel.BAR1 {
		if id, _, hit := v.fifo.poll(off, len(p)); hit {
			v.card.Channel(id, Refresh, 0)
		}
	}
	v.window(v.card.Read(windowOf[bar], off, p))
}

// writeBAR writes through BAR1 or BAR3.
func (v *VGPU) writeBAR(bar int, off uint64, p []byte) {
	var id uint8
	var doorbell bool
	if bar == devmodel.BAR1 {
		id, doorbell, _ = v.fifo.poll(off, len(p))
	}
	v.window(v.card.Write(windowOf[bar], off, p))
	if doorbell {
		v.card.Channel(id, Doorbell, 0)
	}
}

// window reports a window's fault to the guest, if there was one.
func (v *VGPU) window(f gf100.MMUFault, ok bool) {
	if !ok {
		v.fifo.Fault(f)
		v.Settle()
	}
}

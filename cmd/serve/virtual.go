package serve

import (
	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Virtual is a virtual GPU with its share of a card.
type Virtual struct {
	*Device
	GPU   *devmodel.VGPU
	Guest *aggregator.Guest

	stopWatch func() // ends the watch of the client's DMA map, or nil
}

// NewVirtual makes a virtual GPU and gives it a share of a's card. Close gives
// the share back.
func NewVirtual(a *aggregator.Aggregator, share aggregator.GuestConfig, cfg devmodel.Config) (*Virtual, error) {
	gpu, err := devmodel.New(cfg, share.VRAM)
	if err != nil {
		return nil, err
	}
	guest, err := a.AddGuest(share, gpu)
	if err != nil {
		gpu.Close()
		return nil, err
	}
	gpu.Connect(guest)
	v := &Virtual{GPU: gpu, Guest: guest}
	v.Device = &Device{fn: gpu, plug: v.plug}
	return v, nil
}

// Close takes the virtual GPU out of service. No client may be attached.
func (v *Virtual) Close() error {
	v.GPU.Close()
	return v.Guest.Remove()
}

// plug joins the virtual GPU to a client: its interrupt to the client's, its
// channels to the client's memory. When a client goes, its guest is over: the
// channels end and what it left in VRAM is scrubbed.
func (v *Virtual) plug(h *hostSide) {
	if h == nil {
		v.stopWatch()
		v.GPU.AttachHost(nil)
		v.Guest.DetachMemory()
		if err := v.GPU.Reset(); err != nil {
			panic(err) // the card's memory cannot be scrubbed: nobody may have it
		}
		return
	}
	v.stopWatch = h.Watch(func(c vfiouser.MemoryChange) {
		if c.Removed {
			v.Guest.Unmapped(c.Addr, c.Size)
		}
	})
	v.Guest.AttachMemory(h)
	v.GPU.AttachHost(gpuHost{h})
}

// gpuHost is a client as a virtual GPU sees it.
type gpuHost struct{ *hostSide }

// Interrupt implements devmodel.Host.
func (h gpuHost) Interrupt(l devmodel.Line) { h.hostSide.Interrupt(card.Line(l)) }

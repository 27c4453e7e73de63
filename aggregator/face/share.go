// Package face has what a face of any chip needs of the guest that it shows. The faces are in the packages
// gf100 and gh100.
package face

import (
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/aggregator/window"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Share is a guest's share of the card.
type Share interface {
	Time() uint64
	Reset(keep bool) error
	Memory() *memory.Memory
	ChannelStats() *channels.Stats

	Windows
	Invalidate(key shadow.Key, all bool)

	Bind(id uint32, on bool)
	Allow(id uint32, on bool)
	Preempt(id uint32)
	Doorbell(id uint32)
	Pending() channels.Pending
}

// Windows are the guest's views of its memory.
type Windows interface {
	ShowBAR(bar int, virtual bool, s *shadowpt.Space)
	ReadBAR(bar int, off uint64, p []byte) (window.Fault, bool)
	WriteBAR(bar int, off uint64, p []byte) (window.Fault, bool)
	ReadAt(t shadowpt.Target, addr uint64, p []byte)
	WriteAt(t shadowpt.Target, addr uint64, p []byte)
	PointPRAMIN(t shadowpt.Target, addr uint64)
	MemoryBarrier()
	Access()
	Shown() bool
}

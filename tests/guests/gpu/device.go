package gpu

import (
	"fmt"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// A Device is one client of the GPU: an address space with buffers and channels.
type (
	Device  = *drm.Device
	Buffer  = *drm.Buffer
	Channel = *drm.Channel
	Ref     = drm.Ref
)

// ref puts a buffer on a submission's validation list.
func ref(b Buffer, valid drm.Domain, write bool) Ref {
	return Ref{Buffer: b, Valid: valid, Write: write}
}

// Env is the machine around the GPU.
type Env struct {
	Release    string                                                    // uname -r
	Interrupts func() (uint64, error)                                    // of the GPU, since boot
	Reference  func(channel int) (uint32, error)                         // the REF word of a channel's USERD
	Mark       func() (uint64, error)                                    // last kernel log record
	Log        func(after uint64) ([]proto.KmsgRecord, error)            // what came after it
	Registers  func(node string) (regs []uint32, done func(), err error) // BAR0 of the node's card
	// USERD maps a channel's page of the poll area.
	USERD func(node string, channel int) (page []uint32, done func(), err error)
	// BAR maps the start of any BAR of the node's card.
	BAR func(node string, index, size int) (words []uint32, done func(), err error)
}

// Open opens a node, or for "" the first render node.
func (e *Env) Open(node string) (Device, error) {
	if node == "" {
		var err error
		if node, err = drm.DefaultNode(); err != nil {
			return nil, err
		}
	}
	return drm.Open(node)
}

// domainOf reads the "vram" and "gart" of a request.
func domainOf(s string) (drm.Domain, error) {
	switch s {
	case "vram":
		return drm.DomainVRAM, nil
	case "gart":
		return drm.DomainGART, nil
	}
	return 0, fmt.Errorf("domain %q: want vram or gart", s)
}

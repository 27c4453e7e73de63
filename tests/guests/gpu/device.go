package gpu

import (
	"fmt"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Device is one client of the GPU: an address space with buffers and channels.
type Device interface {
	Version() (drm.Version, error)
	Param(param uint64) (uint64, error)
	NewBuffer(size uint64, domains drm.Domain, o drm.BufferOptions) (Buffer, error)
	NewChannel() (Channel, error)
	Close() error
}

// Buffer is memory that the GPU and the CPU share. See drm.Buffer.
type Buffer interface {
	Size() uint64
	VA() uint64
	Domain() (drm.Domain, error)
	Bytes() ([]byte, error)
	Wait(write bool) error
	Busy(write bool) (bool, error)
	Close() error
}

// Ref is a buffer on a submission's validation list. See drm.Ref.
type Ref struct {
	Buffer Buffer
	Valid  drm.Domain
	Write  bool
}

// Channel is a GPU channel. See drm.Channel.
type Channel interface {
	ID() int
	Classes() ([]drm.Class, error)
	NewObject(class uint32) (uint32, error)
	FreeObject(handle uint32) error
	NewObjectNVIF(class uint32, token uint64) error
	Submit(refs []Ref, segments []drm.Segment, wait bool) error
	Alive() error
	Close() error
}

// Env is what the work needs of the machine around the GPU. Fields other than Open may be
// nil; what depends on them is then reported as skipped, or as zero.
type Env struct {
	Open       func(node string) (Device, error)
	Release    string                                                    // uname -r
	Interrupts func() (uint64, error)                                    // of the GPU, since boot
	Reference  func(channel int) (uint32, error)                         // the REF word of a channel's USERD
	Mark       func() (uint64, error)                                    // last kernel log record
	Log        func(after uint64) ([]proto.KmsgRecord, error)            // what came after it
	Registers  func(node string) (regs []uint32, done func(), err error) // BAR0 of the node's card
	// USERD maps a channel's page of the poll area.
	USERD func(node string, channel int) (page []uint32, done func(), err error)
	// BAR maps the start of any of its BARs.
	BAR func(node string, index, size int) (words []uint32, done func(), err error)
}

// OpenDRM opens a node, or for "" the first render node.
func OpenDRM(node string) (Device, error) {
	if node == "" {
		var err error
		if node, err = drm.DefaultNode(); err != nil {
			return nil, err
		}
	}
	d, err := drm.Open(node)
	if err != nil {
		return nil, err
	}
	return drmDevice{d}, nil
}

// drmDevice gives drm's concrete types as the interfaces of this package.
type drmDevice struct{ *drm.Device }

func (d drmDevice) NewBuffer(size uint64, domains drm.Domain, o drm.BufferOptions) (Buffer, error) {
	b, err := d.Device.NewBuffer(size, domains, o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (d drmDevice) NewChannel() (Channel, error) {
	c, err := d.Device.NewChannel()
	if err != nil {
		return nil, err
	}
	return drmChannel{c}, nil
}

type drmChannel struct{ *drm.Channel }

func (c drmChannel) Submit(refs []Ref, segments []drm.Segment, wait bool) error {
	list := make([]drm.Ref, len(refs))
	for i, r := range refs {
		b, ok := r.Buffer.(*drm.Buffer)
		if !ok {
			return fmt.Errorf("a %T on a DRM validation list", r.Buffer)
		}
		list[i] = drm.Ref{Buffer: b, Valid: r.Valid, Write: r.Write}
	}
	return c.Channel.Submit(list, segments, wait)
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

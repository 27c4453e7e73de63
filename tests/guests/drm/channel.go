package drm

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Limits of one GEM_PUSHBUF. Source: nouveau_drm.h.
const (
	MaxPush    = 512
	MaxBuffers = 1024

	noPrefetch = 1 << 23
)

// pushSync in vram_available makes GEM_PUSHBUF wait for its fence and return the
// fence's error. It holds the client's lock while it busy-waits.
const pushSync = 1

// Channel is a GPU channel of the legacy interface. On Fermi every channel
// can reach every engine; the domain handles of CHANNEL_ALLOC mean nothing.
type Channel struct {
	dev      *Device
	id       int32
	notifier uint32
	next     uint32 // handle of the next object
}

// NewChannel makes a channel. ENODEV: nouveau has no channel of its own
// (its acceleration failed to start).
func (d *Device) NewChannel() (*Channel, error) {
	req := &channelAlloc{}
	if err := ioctl(d.f, "CHANNEL_ALLOC", ioctlChannelAlloc, unsafe.Pointer(req)); err != nil {
		return nil, err
	}
	return &Channel{dev: d, id: req.Channel, notifier: req.NotifierHandle, next: 0xbeef0000}, nil
}

// ID is the hardware channel number.
func (c *Channel) ID() int { return int(c.id) }

// NewObject makes an object of a class by GROBJ_ALLOC, which attaches the class's
// engine to the channel, and returns its handle.
func (c *Channel) NewObject(class uint32) (uint32, error) {
	c.next++
	req := &grobjAlloc{Channel: c.id, Handle: c.next, Class: int32(class)}
	err := ioctl(c.dev.f, "GROBJ_ALLOC", ioctlGrobjAlloc, unsafe.Pointer(req))
	if err != nil {
		return 0, fmt.Errorf("class %04x: %w", class, err)
	}
	return c.next, nil
}

// FreeObject ends an object made by NewObject.
func (c *Channel) FreeObject(handle uint32) error {
	req := &gpuobjFree{Channel: c.id, Handle: handle}
	return ioctl(c.dev.f, "GPUOBJ_FREE", ioctlGpuobjFree, unsafe.Pointer(req))
}

// Ref puts a buffer on a submission's validation list. The kernel moves it to
// one of Valid, and orders the submission after other users: after writers if
// it only reads, after everybody if it writes.
type Ref struct {
	Buffer *Buffer
	Valid  Domain
	Write  bool
}

// Segment is a run of command words in a buffer of the validation list.
type Segment struct {
	Ref        int // index in the list
	Offset     uint64
	Bytes      uint64
	NoPrefetch bool
}

// Submit queues segments. With wait it returns when the submission's fence is
// signalled, with the fence's own error (ENODEV if the channel was killed).
func (c *Channel) Submit(refs []Ref, segments []Segment, wait bool) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	req := &gemPushbuf{Channel: uint32(c.id), NrBuffers: uint32(len(refs)), NrPush: uint32(len(segments))}
	if len(refs) > 0 {
		list := make([]pushbufBO, len(refs))
		for i, r := range refs {
			list[i] = r.entry()
		}
		pin.Pin(&list[0])
		req.Buffers = addr(&list[0])
	}
	if len(segments) > 0 {
		list := make([]pushbufPush, len(segments))
		for i, s := range segments {
			list[i] = s.entry()
		}
		pin.Pin(&list[0])
		req.Push = addr(&list[0])
	}
	if wait {
		req.VRAMAvailable = pushSync
	}
	return ioctl(c.dev.f, "GEM_PUSHBUF", ioctlGEMPushbuf, unsafe.Pointer(req))
}

func (r Ref) entry() pushbufBO {
	b := pushbufBO{Handle: r.Buffer.handle, ValidDomains: uint32(r.Valid), ReadDomains: uint32(r.Valid)}
	if r.Write {
		b.WriteDomains = uint32(r.Valid)
	}
	b.Presumed.Valid = 1
	b.Presumed.Domain = uint32(r.Valid)
	b.Presumed.Offset = r.Buffer.va
	return b
}

func (s Segment) entry() pushbufPush {
	p := pushbufPush{BOIndex: uint32(s.Ref), Offset: s.Offset, Length: s.Bytes}
	if s.NoPrefetch {
		p.Length |= noPrefetch
	}
	return p
}

// Alive asks whether the kernel still takes work for the channel, by an
// empty submission: nil, or ENODEV after it was killed, ENOENT if it does not exist.
func (c *Channel) Alive() error { return c.Submit(nil, nil, false) }

// Close frees the channel. The kernel first waits for its work to end.
func (c *Channel) Close() error {
	if c.notifier != 0 {
		req := &gemClose{Handle: c.notifier}
		if err := ioctl(c.dev.f, "GEM_CLOSE", ioctlGEMClose, unsafe.Pointer(req)); err != nil {
			return err
		}
		c.notifier = 0
	}
	req := &channelFree{Channel: c.id}
	return ioctl(c.dev.f, "CHANNEL_FREE", ioctlChannelFree, unsafe.Pointer(req))
}

package drm

import (
	"fmt"
	"runtime"
	"unsafe"
)

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
// engine to the channel.
func (c *Channel) NewObject(class uint32) error {
	c.next++
	req := &grobjAlloc{Channel: c.id, Handle: c.next, Class: int32(class)}
	err := ioctl(c.dev.f, "GROBJ_ALLOC", ioctlGrobjAlloc, unsafe.Pointer(req))
	if err != nil {
		return fmt.Errorf("class %04x: %w", class, err)
	}
	return nil
}

// Ref puts a buffer on a submission's validation list. The kernel moves it to
// one of Valid, and orders the submission after other users: after writers if
// it only reads, after everybody if it writes.
type Ref struct {
	Buffer *Buffer
	Valid  Domain
	Write  bool
}

// Submit queues so many bytes of command words at the start of the first buffer on the list.
func (c *Channel) Submit(refs []Ref, bytes uint64) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	req := &gemPushbuf{Channel: uint32(c.id), NrBuffers: uint32(len(refs))}
	if len(refs) > 0 {
		list := make([]pushbufBO, len(refs))
		for i, r := range refs {
			list[i] = r.entry()
		}
		pin.Pin(&list[0])
		req.Buffers = addr(&list[0])
	}
	if bytes > 0 {
		words := &pushbufPush{Length: bytes}
		pin.Pin(words)
		req.NrPush, req.Push = 1, addr(words)
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

// Alive asks whether the kernel still takes work for the channel, by an
// empty submission: nil, or ENODEV after it was killed, ENOENT if it does not exist.
func (c *Channel) Alive() error { return c.Submit(nil, 0) }

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

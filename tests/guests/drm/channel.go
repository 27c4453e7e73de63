package drm

import (
	"fmt"
	"runtime"
	"unsafe"
)

// MaxPush is how many segments one GEM_PUSHBUF may have. Source: nouveau_drm.h.
const MaxPush = 512

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
	Ref   int // index in the list
	Bytes uint64
}

// Submit queues segments.
func (c *Channel) Submit(refs []Ref, segments []Segment) error {
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
			list[i] = pushbufPush{BOIndex: uint32(s.Ref), Length: s.Bytes}
		}
		pin.Pin(&list[0])
		req.Push = addr(&list[0])
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
func (c *Channel) Alive() error { return c.Submit(nil, nil) }

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

// maxClasses bounds a class list: the count field is one byte.
const maxClasses = 255

// ListClasses asks what can be instantiated on the channel (NVIF SCLASS). It is how
// Mesa 25 and later choose their classes.
func (c *Channel) ListClasses() error {
	const head = int(unsafe.Sizeof(nvifHead{}) + unsafe.Sizeof(nvifSclass{}))
	msg := c.message(nvifTypeSclass, head+maxClasses*int(unsafe.Sizeof(nvifClass{})))
	msg[unsafe.Offsetof(nvifSclass{}.Count)+unsafe.Sizeof(nvifHead{})] = maxClasses
	return c.nvif("NVIF SCLASS", msg)
}

// NewObjectNVIF makes an object by NVIF NEW, the way of Mesa 25 and later.
// The token that names it is the caller's choice, unique within the client.
func (c *Channel) NewObjectNVIF(class uint32, token uint64) error {
	msg := c.message(nvifTypeNew, int(unsafe.Sizeof(nvifHead{})+unsafe.Sizeof(nvifNew{})))
	n := (*nvifNew)(unsafe.Pointer(&msg[unsafe.Sizeof(nvifHead{})]))
	c.next++
	n.Route, n.Token, n.Object, n.Handle, n.Class = 0, token, token, c.next, int32(class)
	if err := c.nvif("NVIF NEW", msg); err != nil {
		return fmt.Errorf("class %04x: %w", class, err)
	}
	return nil
}

// message starts an NVIF message for the channel object, which the kernel finds by
// the token when the route is hidden.
func (c *Channel) message(typ uint8, size int) []byte {
	msg := make([]byte, size)
	h := (*nvifHead)(unsafe.Pointer(&msg[0]))
	h.Type, h.Owner, h.Route, h.Token = typ, nvifOwnerAny, nvifRouteHidden, uint64(uint32(c.id))
	return msg
}

func (c *Channel) nvif(op string, msg []byte) error {
	return ioctl(c.dev.f, op, ioctlNVIF(uintptr(len(msg))), unsafe.Pointer(&msg[0]))
}

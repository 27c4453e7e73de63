package drm

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// maxClasses bounds a class list: the count field is one byte.
const maxClasses = 255

// Class is one entry of a channel's class list.
type Class struct {
	ID             uint32
	MinVer, MaxVer int
}

// Classes lists what can be instantiated on the channel (NVIF SCLASS). It is how
// Mesa 25 and later choose their classes.
func (c *Channel) Classes() ([]Class, error) {
	const head = int(unsafe.Sizeof(nvifHead{}) + unsafe.Sizeof(nvifSclass{}))
	msg := c.message(nvifTypeSclass, head+maxClasses*int(unsafe.Sizeof(nvifClass{})))
	msg[unsafe.Offsetof(nvifSclass{}.Count)+unsafe.Sizeof(nvifHead{})] = maxClasses
	if err := c.nvif("NVIF SCLASS", msg); err != nil {
		return nil, err
	}
	n := int(msg[unsafe.Offsetof(nvifSclass{}.Count)+unsafe.Sizeof(nvifHead{})])
	classes := make([]Class, n)
	for i := range classes {
		e := msg[head+i*int(unsafe.Sizeof(nvifClass{})):]
		classes[i] = Class{
			ID:     binary.NativeEndian.Uint32(e),
			MinVer: int(int16(binary.NativeEndian.Uint16(e[4:]))),
			MaxVer: int(int16(binary.NativeEndian.Uint16(e[6:]))),
		}
	}
	return classes, nil
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

// FreeObjectNVIF ends an object made by NewObjectNVIF.
func (d *Device) FreeObjectNVIF(token uint64) error {
	msg := make([]byte, unsafe.Sizeof(nvifHead{}))
	h := (*nvifHead)(unsafe.Pointer(&msg[0]))
	h.Type, h.Object = nvifTypeDel, token
	return ioctl(d.f, "NVIF DEL", ioctlNVIF(uintptr(len(msg))), unsafe.Pointer(&msg[0]))
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

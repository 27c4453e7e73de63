package drm

import (
	"fmt"
	"unsafe"
)

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

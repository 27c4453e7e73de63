package rig

import (
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/gh100"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// hopper is the driver of a GH100.
type hopper struct {
	g *guest.Guest
	d *gh100.Driver
	s *gh100.Space

	vram map[uint64][2]uint64 // address and size, by where it is mapped
}

// GaveUp is why that driver gave up: it panics.
type GaveUp string

// NewHopper returns a driver of a GH100 that has done nothing yet.
func NewHopper(g *guest.Guest) *gh100.Driver {
	return &gh100.Driver{Bus: g, RAM: g.Memory().Data, Base: g.RAMBase(), Timeout: Patience, Fail: func(why ...any) { panic(GaveUp(fmt.Sprint(why...))) }}
}

func newHopper(g *guest.Guest) (Driver, error) {
	h := &hopper{g: g, d: NewHopper(g), vram: map[uint64][2]uint64{}}
	return h, h.try(func() {
		h.d.Boot()
		h.s = h.d.NewSpace()
	})
}

// try makes an error of a panic of the driver.
func (h *hopper) try(do func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(errors.New(string(p.(GaveUp))), h.g.Sync())
		}
	}()
	do()
	return nil
}

func (h *hopper) MapVRAM(n uint64) (va uint64, err error) {
	err = h.try(func() {
		addr := h.d.AllocVRAM(n)
		va = h.s.Map(gh100.VRAM, addr, n)
		h.vram[va] = [2]uint64{addr, n}
	})
	return va, err
}

// MapPages maps n pages of VRAM in one go, none of which lies behind the one before. It returns when the tables were written, before the
// invalidate.
func (h *hopper) MapPages(n int) (va uint64, written time.Time, err error) {
	const pageSize = 4096
	err = h.try(func() {
		addrs := make([]uint64, n)
		for i := range addrs {
			addrs[n-1-i] = h.d.AllocVRAM(pageSize)
		}
		va = h.s.SetPages(addrs)
		written = time.Now()
		h.s.Flush(1)
	})
	return va, written, err
}

func (h *hopper) Window(va uint64) (p []byte, err error) {
	addr, n := h.vram[va][0], h.vram[va][1]
	err = h.try(func() {
		h.d.ShowBAR2(addr, 4096, false) // the call that this takes is over before Bind begins one
		at := h.d.MapBAR1(addr)
		for off := uint64(4096); off < n; off += 4096 {
			h.d.MapBAR1(addr + off)
		}
		p = h.g.Mapped(1, at)[:n]
	})
	return p, err
}

func (h *hopper) Detour(va uint64) error {
	return h.try(func() {
		for _, on := range []bool{true, false} {
			h.d.ShowBAR2(h.vram[va][0], h.vram[va][1], on)
		}
	})
}

func (h *hopper) MapRAM(n uint64) (va uint64, p []byte, err error) {
	err = h.try(func() {
		var addr uint64
		addr, p = h.d.AllocRAM(n)
		va = h.s.Map(gh100.RAM, addr, n)
	})
	return va, p, err
}

func (h *hopper) Open(id int) (Channel, error) {
	c := &hopperChannel{h: h}
	return c, h.try(func() {
		c.Channel = h.s.NewChannel(uint32(id), []gh100.Engine{gh100.Copy1, gh100.Graphics}[id%2])
	})
}

type hopperChannel struct {
	*gh100.Channel
	h    *hopper
	last uint32 // fence
}

// Submit submits any commands.
func (c *hopperChannel) Submit(b *push.Buffer) error {
	return c.h.try(func() { c.last = c.Channel.Submit(b.Words...) })
}

func (c *hopperChannel) Copy(dst, src, n uint64) error { return c.Lines(dst, src, uint32(n), 1) }

func (c *hopperChannel) Lines(dst, src uint64, n, lines uint32) error {
	return c.Submit(new(push.Buffer).Bind(push.HopperCopy).CopyLines(push.HopperCopy, push.Surface{VA: dst}, push.Surface{VA: src}, n, lines))
}

func (c *hopperChannel) Release(va uint64, payload uint32) error {
	return c.Submit(new(push.Buffer).HopperRelease(va, payload))
}

func (c *hopperChannel) Mark() (func() error, error) {
	seq := c.last
	return func() error { return c.until(seq) }, nil
}

func (c *hopperChannel) Finish() error { return c.until(c.last) }

func (c *hopperChannel) until(seq uint32) (err error) {
	failed := c.h.try(func() { err = c.Until(seq) })
	return errors.Join(failed, err)
}

func (c *hopperChannel) Unbind() error { return c.h.try(c.h.s.Detach) }

func (c *hopperChannel) Bind() (wait func() error, err error) {
	var reply func()
	err = c.h.try(func() { reply = c.h.s.Attach() })
	return func() error { return c.h.try(reply) }, err
}

func (c *hopperChannel) Close() error { return c.h.try(c.Channel.Close) }

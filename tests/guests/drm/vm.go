package drm

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ManageSpace makes the client choose the addresses of its buffers, by Bind, and submit by Exec. It comes
// before the first buffer and channel. Linux has it from 6.6 on.
func (d *Device) ManageSpace() error {
	// The kernel keeps this part of the space for its own rings.
	return ioctl(d.f, "VM_INIT", ioctlVMInit, unsafe.Pointer(&vmInit{KernelManagedAddr: 1 << 38, KernelManagedSize: 1 << 30}))
}

// Timeline is a syncobj of the kernel. Its points are reached in order.
type Timeline struct {
	dev    *Device
	handle uint32
	last   uint64 // point that is queued
}

// Step is a place in a timeline: a job that begins after the step before.
type Step struct {
	timeline *Timeline
	point    uint64
}

// NewTimeline makes one whose first point is reached.
func (d *Device) NewTimeline() (*Timeline, error) {
	req := &syncobjCreate{}
	if err := ioctl(d.f, "SYNCOBJ_CREATE", ioctlSyncobjCreate, unsafe.Pointer(req)); err != nil {
		return nil, err
	}
	t := &Timeline{dev: d, handle: req.Handle, last: 1}
	var pin runtime.Pinner
	defer pin.Unpin()
	handles, points := t.pinned(&pin)
	return t, ioctl(d.f, "SYNCOBJ_TIMELINE_SIGNAL", ioctlTimelineSignal, unsafe.Pointer(&syncobjArray{Handles: handles, Points: points, Count: 1}))
}

// pinned are the addresses of the handle and the last point.
func (t *Timeline) pinned(pin *runtime.Pinner) (handle, point uint64) {
	pin.Pin(t)
	return addr(&t.handle), addr(&t.last)
}

// Next is the step after all so far. Its job must be queued before that of another step.
func (t *Timeline) Next() Step {
	t.last++
	return Step{t, t.last}
}

// Wait returns when the last step is done, or fails after a time.
func (t *Timeline) Wait(patience time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	req := &syncobjTimelineWait{TimeoutNS: uint64(now.Nano() + patience.Nanoseconds()), Count: 1}
	req.Handles, req.Points = t.pinned(&pin)
	return ioctl(t.dev.f, "SYNCOBJ_TIMELINE_WAIT", ioctlTimelineWait, unsafe.Pointer(req))
}

// Close frees it.
func (t *Timeline) Close() error {
	return ioctl(t.dev.f, "SYNCOBJ_DESTROY", ioctlSyncobjDestroy, unsafe.Pointer(&syncobjCreate{Handle: t.handle}))
}

// points are what a job waits for and what it reaches, pinned.
func (s Step) points(pin *runtime.Pinner) (wait, sig uint64) {
	const timeline = 1
	p := &[2]syncPoint{{timeline, s.timeline.handle, s.point - 1}, {timeline, s.timeline.handle, s.point}}
	pin.Pin(p)
	return addr(&p[0]), addr(&p[1])
}

// Bind maps a whole buffer at an address that the client chose, or unmaps it.
func (d *Device) Bind(b *Buffer, va uint64, unmap bool, s Step) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	op := &vmBindOp{Handle: b.handle, Addr: va, Range: b.size}
	if unmap {
		op.Op, op.Handle = 1, 0
	}
	pin.Pin(op)
	const async = 1
	req := &vmBind{OpCount: 1, Flags: async, WaitCount: 1, SigCount: 1, Op: addr(op)}
	req.Wait, req.Sig = s.points(&pin)
	if err := ioctl(d.f, "VM_BIND", ioctlVMBind, unsafe.Pointer(req)); err != nil {
		return fmt.Errorf("%d bytes at %#x: %w", b.size, va, err)
	}
	b.va = va
	return nil
}

// Exec runs so many bytes of command words at an address.
func (c *Channel) Exec(va uint64, bytes int, s Step) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	words := &execPush{VA: va, Len: uint32(bytes)}
	pin.Pin(words)
	req := &exec{Channel: uint32(c.id), PushCount: 1, WaitCount: 1, SigCount: 1, Push: addr(words)}
	req.Wait, req.Sig = s.points(&pin)
	return ioctl(c.dev.f, "EXEC", ioctlExec, unsafe.Pointer(req))
}

package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// EventFD is an eventfd shared with the server.
type EventFD struct{ FD int }

// NewEventFD makes an eventfd as QEMU does.
func NewEventFD() (*EventFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &EventFD{fd}, nil
}

// Count takes the signals since the last call, 0 if there are none.
func (e *EventFD) Count() uint64 {
	var b [8]byte
	if n, err := unix.Read(e.FD, b[:]); n != 8 || err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// Wait takes the signals, waiting for the first. It polls once more after the timeout,
// because this process may have been descheduled.
func (e *EventFD) Wait(timeout time.Duration) (uint64, error) {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if n := e.Count(); n > 0 {
			return n, nil
		}
		if left <= 0 {
			return 0, fmt.Errorf("no interrupt within %v: %w", timeout, os.ErrDeadlineExceeded)
		}
		p := [1]unix.PollFd{{Fd: int32(e.FD), Events: unix.POLLIN}}
		if _, err := unix.Poll(p[:], int(left/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}

// Signal adds one.
func (e *EventFD) Signal() error {
	_, err := unix.Write(e.FD, binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// Close closes the eventfd.
func (e *EventFD) Close() error { return unix.Close(e.FD) }

// SetIRQs sends one SET_IRQS.
func (c *Client) SetIRQs(flags uint32, index, start, count int, data []byte, fds ...int) error {
	s := wire.IRQSet{
		Argsz: uint32(wire.IRQSetSize + len(data)),
		Flags: flags,
		Index: uint32(index), Start: uint32(start), Count: uint32(count),
	}
	_, err := c.Call(wire.DeviceSetIRQs, append(wire.Append(nil, s), data...), fds...)
	return err
}

// AttachIRQs gives vectors start to start+n-1 of an index an eventfd each, in messages of as
// many descriptors as the server takes. The eventfds are the caller's to close.
func (c *Client) AttachIRQs(index, start, n int) ([]*EventFD, error) {
	es := make([]*EventFD, 0, n)
	for range n {
		e, err := NewEventFD()
		if err != nil {
			return es, err
		}
		es = append(es, e)
	}
	for at := 0; at < n; {
		step := min(n-at, max(c.limit, 1))
		fds := make([]int, step)
		for i := range fds {
			fds[i] = es[at+i].FD
		}
		if err := c.SetIRQs(wire.IRQDataEventFD|wire.IRQActionTrigger, index, start+at, step, nil, fds...); err != nil {
			return es, err
		}
		at += step
	}
	return es, nil
}

// DisableIRQ switches a whole index off.
func (c *Client) DisableIRQ(index int) error {
	return c.SetIRQs(wire.IRQDataNone|wire.IRQActionTrigger, index, 0, 0, nil)
}

// MaskIRQ masks vectors.
func (c *Client) MaskIRQ(index, start, n int) error {
	return c.SetIRQs(wire.IRQDataNone|wire.IRQActionMask, index, start, n, nil)
}

// UnmaskIRQ unmasks vectors.
func (c *Client) UnmaskIRQ(index, start, n int) error {
	return c.SetIRQs(wire.IRQDataNone|wire.IRQActionUnmask, index, start, n, nil)
}

// ResampleIRQ gives a vector an eventfd that unmasks it when signalled, as KVM's resampling
// interrupt does.
func (c *Client) ResampleIRQ(index, vector int, e *EventFD) error {
	return c.SetIRQs(wire.IRQDataEventFD|wire.IRQActionUnmask, index, vector, 1, nil, e.FD)
}

package vfiouser

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// Errors of Host.DMARead and Host.DMAWrite, besides ErrNotMapped and ErrFault. An errno the
// client answered with is in the chain as a syscall.Errno.
var (
	// ErrInHandler says that a handler asked for DMA by message. The client is waiting for the
	// handler's reply with its big lock held and would serve the request only after it.
	ErrInHandler = errors.New("vfiouser: DMA by message from inside a handler")
	// ErrDetached says that the client is gone.
	ErrDetached = errors.New("vfiouser: no client")
	// ErrDMATimeout says that the client did not answer within Options.DMATimeout.
	ErrDMATimeout = errors.New("vfiouser: client did not answer a DMA request in time")
	// ErrDMAReply says that the client's answer does not fit the request.
	ErrDMAReply = errors.New("vfiouser: malformed answer to a DMA request")
	// ErrNoMessageDMA says that the client takes no DMA messages (max_data_xfer_size 0).
	ErrNoMessageDMA = errors.New("vfiouser: client takes no DMA messages")
)

// Host is a device's way to its client for the life of one connection. Its methods may be
// called from any goroutine, also after the client has gone.
type Host struct{ c *conn }

// Memory is the guest's memory.
func (h *Host) Memory() *Memory { return &h.c.mem }

// Trigger signals an interrupt: one 8-byte eventfd write, which never waits. A masked vector
// stays pending; one without an eventfd is counted.
func (h *Host) Trigger(index, vector int) { h.c.irqs.trigger(index, vector) }

// Clear takes back a trigger that is pending on a masked vector: the line of a level-triggered
// interrupt went low.
func (h *Host) Clear(index, vector int) { h.c.irqs.clear(index, vector) }

// DMARead copies guest memory at addr to p. What is mapped is copied directly, the rest is
// asked of the client by message (64-260 us each under QEMU). Messages are refused with
// ErrInHandler on the connection's own thread.
//
// Preconditions: not Memory.Acquire.
func (h *Host) DMARead(ctx context.Context, addr uint64, p []byte) error {
	return h.c.dma(ctx, addr, p, false)
}

// DMAWrite copies p to guest memory at addr; see DMARead.
func (h *Host) DMAWrite(ctx context.Context, addr uint64, p []byte) error {
	return h.c.dma(ctx, addr, p, true)
}

func (c *conn) dma(ctx context.Context, addr uint64, p []byte, write bool) error {
	c.mem.Acquire()
	err := c.mem.copy(addr, p, write)
	ok := err != ErrNotMapped || c.mem.covered(addr, uint64(len(p)), write)
	c.mem.Release()
	switch {
	case err != ErrNotMapped:
		return err
	case c.gone.Load():
		return ErrDetached
	case !ok:
		return ErrNotMapped
	case unix.Gettid() == c.tid:
		return ErrInHandler
	}
	return c.dmaMessages(ctx, addr, p, write)
}

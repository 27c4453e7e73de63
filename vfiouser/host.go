package vfiouser

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// Errors of Host.DMARead and Host.DMAWrite, besides ErrNotMapped and ErrFault. An errno the
// client answered with is in the chain as a syscall.Errno.
var (
	// ErrInHandler means that a handler asked for DMA by message. The client is waiting for
	// the handler's reply with its big lock held and would serve the request only after it.
	ErrInHandler = errors.New("vfiouser: DMA by message from inside a handler")
	// ErrDetached means that no client is attached.
	ErrDetached = errors.New("vfiouser: no client")
	// ErrDMATimeout means that the client did not answer within Options.DMATimeout.
	ErrDMATimeout = errors.New("vfiouser: client did not answer a DMA request in time")
	// ErrDMAReply means that the client's answer does not fit the request.
	ErrDMAReply = errors.New("vfiouser: malformed answer to a DMA request")
	// ErrNoMessageDMA means that the client takes no DMA messages (max_data_xfer_size 0).
	ErrNoMessageDMA = errors.New("vfiouser: client takes no DMA messages")
)

// Link is a transport's implementation of a device's Host. Its methods are those of the Host
// with the same names.
type Link interface {
	Memory() *Memory
	Trigger(index, vector int)
	Clear(index, vector int)
	// DMA copies between p and memory at addr, by message if it must.
	DMA(ctx context.Context, addr uint64, p []byte, write bool) error
}

// Host gives a device access to its client for the life of one connection. Its methods may
// be called from any goroutine, also after the client has disconnected.
type Host struct{ l Link }

// NewHost returns the host side of one connection of a transport.
func NewHost(l Link) *Host { return &Host{l} }

// Memory is the guest's memory.
func (h *Host) Memory() *Memory { return h.l.Memory() }

// Peer is the process that connected, as the kernel knows it; nil if the transport does not say. In a socket
// pair it is the process that made the pair. The PID is 0 if it is in no namespace of this process.
func (h *Host) Peer() *unix.Ucred {
	if l, ok := h.l.(interface{ peer() *unix.Ucred }); ok {
		return l.peer()
	}
	return nil
}

// Trigger signals an interrupt by the client's eventfd, which never waits. A masked vector
// stays pending; one without an eventfd is counted.
func (h *Host) Trigger(index, vector int) { h.l.Trigger(index, vector) }

// Clear takes back a trigger that is pending on a masked vector: the line of a level-triggered
// interrupt went low.
func (h *Host) Clear(index, vector int) { h.l.Clear(index, vector) }

// DMARead copies guest memory at addr to p. Mapped memory is copied directly, the rest is
// requested from the client by message (64-260 us each under QEMU). Messages are refused
// with ErrInHandler on the connection's own thread.
func (h *Host) DMARead(ctx context.Context, addr uint64, p []byte) error {
	return h.l.DMA(ctx, addr, p, false)
}

// DMAWrite copies p to guest memory at addr; see DMARead.
func (h *Host) DMAWrite(ctx context.Context, addr uint64, p []byte) error {
	return h.l.DMA(ctx, addr, p, true)
}

// The Link of a connection.

func (c *conn) peer() *unix.Ucred         { return c.from }
func (c *conn) Memory() *Memory           { return &c.mem }
func (c *conn) Trigger(index, vector int) { c.irqs.trigger(index, vector) }
func (c *conn) Clear(index, vector int)   { c.irqs.clear(index, vector) }

func (c *conn) DMA(ctx context.Context, addr uint64, p []byte, write bool) error {
	err := c.mem.Copy(addr, p, write)
	switch {
	case err != ErrByMessage && err != ErrNotMapped:
		return err
	case c.closing.Load():
		return ErrDetached
	case err == ErrNotMapped:
		return err
	case unix.Gettid() == c.tid:
		return ErrInHandler
	}
	return c.dmaMessages(ctx, addr, p, write)
}

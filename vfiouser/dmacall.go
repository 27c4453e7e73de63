package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// maxDMAMessage bounds one DMA message, below the client's limit: a message that fits the
// socket's buffer cannot deadlock two sides that both write.
const maxDMAMessage = 64 << 10

// dmaCalls are the DMA requests the client has not answered. The server chooses their ids.
// The ids of the client's commands are independent; the header's type distinguishes them.
type dmaCalls struct {
	mu     sync.Mutex
	calls  map[uint16]*dmaCall
	next   uint16
	closed bool
}

type dmaCall struct {
	cmd  wire.Command
	addr uint64
	n    int
	p    []byte // destination of read data; nil once the caller has given up
	left bool   // the caller has given up; the id stays in use until the answer arrives
	done chan error
}

func (d *dmaCalls) begin(call *dmaCall) (uint16, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, ErrDetached
	}
	if d.calls == nil {
		d.calls = make(map[uint16]*dmaCall)
	}
	if len(d.calls) == 1<<16 {
		return 0, fmt.Errorf("vfiouser: %d DMA requests unanswered: %w", len(d.calls), ErrDMATimeout)
	}
	for d.calls[d.next] != nil {
		d.next++
	}
	id := d.next
	d.next++
	d.calls[id] = call
	return id, nil
}

// leave gives up a call: the caller may reuse its buffer. A call that was never sent is
// dropped immediately.
func (d *dmaCalls) leave(id uint16, call *dmaCall, sent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call.p, call.left = nil, true
	if !sent && d.calls[id] == call {
		delete(d.calls, id)
	}
}

// finish hands an answer to its caller, and reports whether there was such a call.
func (d *dmaCalls) finish(h wire.Header, payload []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := d.calls[h.ID]
	if call == nil || call.cmd != h.Command {
		return false
	}
	delete(d.calls, h.ID)
	if !call.left {
		call.done <- call.take(h, payload)
	}
	return true
}

// take checks an answer and copies its data.
//
// QEMU before 11.1 counts in 32 bits, so that its data begins 4 bytes early, and answers
// DMA_WRITE with a bare header; the message's length shows it.
func (call *dmaCall) take(h wire.Header, payload []byte) error {
	if h.Flags&wire.Error != 0 {
		if h.Errno == 0 || h.Errno > 4095 {
			return syscall.EINVAL
		}
		return syscall.Errno(h.Errno)
	}
	data := 0
	if call.cmd == wire.DMARead {
		data = call.n
	} else if len(payload) == 0 {
		return nil
	}
	fixed := len(payload) - data
	if fixed != 12 && fixed != wire.DMAAccessSize {
		return fmt.Errorf("%w: %d bytes of payload for %d of data", ErrDMAReply, len(payload), data)
	}
	if addr := le.Uint64(payload); addr != call.addr {
		return fmt.Errorf("%w: address %#x, asked for %#x", ErrDMAReply, addr, call.addr)
	}
	if count := le.Uint32(payload[8:]); count != uint32(call.n) {
		return fmt.Errorf("%w: count %d, asked for %d", ErrDMAReply, count, call.n)
	}
	copy(call.p, payload[fixed:])
	return nil
}

func (d *dmaCalls) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, call := range d.calls {
		if !call.left {
			call.done <- ErrDetached
		}
	}
	d.calls = nil
}

func (c *conn) dmaMessages(ctx context.Context, addr uint64, p []byte, write bool) error {
	chunk := min(uint64(c.client.maxDataXfer), maxDMAMessage)
	if chunk == 0 {
		return ErrNoMessageDMA
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.srv.opts.DMATimeout, ErrDMATimeout)
	defer cancel()
	for len(p) > 0 {
		n := min(uint64(len(p)), chunk)
		if err := c.dmaMessage(ctx, addr, p[:n], write); err != nil {
			return err
		}
		p = p[n:]
		addr += n
	}
	return nil
}

func (c *conn) dmaMessage(ctx context.Context, addr uint64, p []byte, write bool) error {
	call := &dmaCall{cmd: wire.DMARead, addr: addr, n: len(p), p: p, done: make(chan error, 1)}
	size := wire.HeaderSize + wire.DMAAccessSize
	if write {
		call.cmd, call.p = wire.DMAWrite, nil
		size += len(p)
	}
	id, err := c.calls.begin(call)
	if err != nil {
		return err
	}
	msg := wire.Append(make([]byte, 0, size), wire.Header{ID: id, Command: call.cmd, Size: uint32(size)})
	msg = wire.Append(msg, wire.DMAAccess{Addr: addr, Count: uint64(len(p))})
	if write {
		msg = append(msg, p...)
	}
	deadline, _ := ctx.Deadline()
	if err := c.sendBy(msg, deadline); err != nil {
		c.calls.leave(id, call, false)
		return err
	}
	k := c.srv.stats.command(call.cmd)
	add(&k.Messages, 1)
	add(&k.Bytes, uint64(size))
	select {
	case err = <-call.done:
		return err
	case <-ctx.Done():
	}
	c.calls.leave(id, call, true)
	select {
	case err = <-call.done: // the answer and the time came together
		return err
	default:
		return context.Cause(ctx)
	}
}

// sendBy writes one message of ours by a deadline. A message that got out in part only ends
// the connection: its rest would be taken for the next one.
func (c *conn) sendBy(msg []byte, deadline time.Time) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if c.closing.Load() {
		return ErrDetached
	}
	sent, err := c.sock.send(msg, deadline)
	if err != nil && sent > 0 {
		c.shutdown()
	}
	if errors.Is(err, syscall.EPIPE) {
		return ErrDetached // the reader has not seen the client's end yet
	}
	return err
}

package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

const (
	// recvBuffer is the receive buffer's first size: some 1,800 register writes.
	recvBuffer = 64 << 10
	// batchReply bounds the replies of one write. It is less than half a socket buffer, so that
	// the kernel accepts it in one piece: QEMU treats a partly read header as the end of the
	// stream.
	batchReply = 64 << 10
)

type clientLimits struct {
	maxMsgFDs    int
	maxDataXfer  uint32
	writeMulti   bool
	migrationPgs uint64
}

// conn is one client's connection. All fields belong to the connection's thread but those
// that lock themselves.
type conn struct {
	srv   *Server
	dev   Device
	ended chan struct{} // closed when the connection has ended
	tid   int
	sock  sock
	from  *unix.Ucred // the client's process; nil if it is not known

	mem     Memory
	irqs    irqTable
	calls   dmaCalls
	closing atomic.Bool

	detaching atomic.Bool // the device is in Detached

	fdMu   sync.Mutex // guards the socket's descriptor against shutdown after close
	closed bool

	sendMu sync.Mutex // held while a message, or a batch of them, is written

	state    state
	client   clientLimits
	regions  [NumRegions]Region
	irqInfos [NumIRQs]IRQ
	attached bool
	shares   bool // the client has given a descriptor of memory
	noted    bool // the failure was logged
	observer IRQObserver
	migrator Migrator

	buf  []byte // received, not yet served: buf[r:w]
	r, w int
	in   arrived

	out      []byte // replies; the present one from mark on
	mark     int
	replies  uint64 // complete in out
	outFD    int    // to go with the present reply, or -1
	sendErr  error
	refused  bool // the client speaks another major version: the connection ends after the reply
	rq       request
	pollFDs  []unix.PollFd
	irqWatch []irqWatch
}

func newConn(s *Server, fd int) *conn {
	c := &conn{
		srv: s, dev: s.dev, state: stateNew,
		ended:  make(chan struct{}),
		buf:    make([]byte, recvBuffer),
		out:    make([]byte, 0, batchReply),
		outFD:  -1,
		client: clientLimits{maxMsgFDs: wire.DefaultMaxMsgFDs, maxDataXfer: wire.DefaultMaxDataXfer},
	}
	c.mem.files.holes = &s.holes
	c.sock.fd, c.irqs.signals, c.irqs.discards = fd, s.signals, &s.discards
	if u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		c.from = u
	}
	return c
}

// run serves the connection until the client leaves, the stream breaks, or shutdown.
func (c *conn) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c.tid = unix.Gettid()
	var err error
	c.contain("the connection", func() { err = c.loop() })
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		c.srv.warn(&c.srv.logStream, "vfio-user connection ended", slog.Any("error", err))
	}
	c.finish()
}

func (c *conn) loop() error {
	for {
		if err := c.receive(); err != nil {
			return err
		}
		add(&c.srv.stats.Receives, 1)
		err := c.serveBatch()
		c.flush()
		if err != nil {
			return err
		}
		if c.sendErr != nil {
			return c.sendErr
		}
		c.makeRoom()
	}
}

// finish undoes what the client set up, and keeps the device's state.
func (c *conn) finish() {
	c.closing.Store(true)
	c.calls.close()
	for !c.mem.empty() {
		c.contain("memory watcher", c.mem.removeAll)
	}
	c.irqs.close()
	if c.attached {
		c.contain("leave migration", c.leaveMigration)
		c.detaching.Store(true)
		c.contain("Detached", c.dev.Detached)
		c.detaching.Store(false)
	}
	c.srv.discards.close(c.in.drop()...)
	c.shutdown()    // a sender that waits for room fails, and releases sendMu
	c.sendMu.Lock() // the last sender has left; later ones find closing set
	c.fdMu.Lock()
	c.closed = true
	c.fdMu.Unlock()
	c.sendMu.Unlock()
	c.srv.discards.close(c.sock.fd)
}

// shutdown makes the connection's thread end. It may be called from any goroutine.
func (c *conn) shutdown() {
	c.fdMu.Lock()
	defer c.fdMu.Unlock()
	if !c.closed {
		_ = unix.Shutdown(c.sock.fd, unix.SHUT_RDWR)
	}
}

func (c *conn) hungUp() bool {
	c.fdMu.Lock()
	defer c.fdMu.Unlock()
	if c.closed {
		return true
	}
	p := [1]unix.PollFd{{Fd: int32(c.sock.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// receive reads once into the free end of the buffer.
func (c *conn) receive() error {
	n, fds, cut, err := c.recv()
	if err != nil {
		return err
	}
	if len(fds) > 0 || cut {
		c.in.arrive(c, c.w, c.w+n, fds, cut)
	}
	if n == 0 {
		return io.EOF
	}
	c.w += n
	return nil
}

func (c *conn) recv() (n int, fds []int, cut bool, err error) {
	if c.irqs.watched {
		return c.recvWatching()
	}
	if err := c.awaitRoom(); err != nil {
		return 0, nil, false, err
	}
	return c.sock.recv(c.buf[c.w:], 0)
}

// awaitRoom waits until the client may send more descriptors. Unlike a receive that drops them, which
// closes them on this thread, it ends with the connection.
func (c *conn) awaitRoom() error {
	for c.srv.discards.full() {
		if c.hungUp() {
			return io.EOF
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// recvWatching waits for the socket and for mask and unmask eventfds together, so that the
// device is called for an unmask on this thread too.
func (c *conn) recvWatching() (n int, fds []int, cut bool, err error) {
	for {
		c.pollFDs = append(c.pollFDs[:0], unix.PollFd{Fd: int32(c.sock.fd), Events: unix.POLLIN})
		c.pollFDs, c.irqWatch = c.irqs.watches(c.pollFDs, c.irqWatch[:0])
		if _, err := unix.Poll(c.pollFDs, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, nil, false, err
		}
		for i, w := range c.irqWatch {
			if p := &c.pollFDs[i+1]; p.Revents != 0 && drain(int(p.Fd)) {
				c.contain("IRQ observer", func() { c.maskIRQ(w.index, w.vec, w.masked) })
			}
		}
		if c.pollFDs[0].Revents == 0 {
			continue
		}
		if err = c.awaitRoom(); err != nil {
			return
		}
		n, fds, cut, err = c.sock.recv(c.buf[c.w:], unix.MSG_DONTWAIT)
		if err != unix.EAGAIN {
			return
		}
	}
}

// errStream is the end of a stream that cannot be followed any further.
var errStream = errors.New("vfiouser: impossible message size")

var errVersion = errors.New("vfiouser: the client speaks another major version")

func (c *conn) serveBatch() error {
	for c.w-c.r >= wire.HeaderSize {
		h := wire.Parse[wire.Header](c.buf[c.r:])
		if h.Size < wire.HeaderSize || h.Size > c.srv.opts.maxMessage() {
			add(&c.srv.stats.BadStreams, 1)
			add(&c.srv.stats.command(h.Command).Errors, 1)
			c.answer(h, syscall.EINVAL)
			return fmt.Errorf("%w: %v of %d bytes", errStream, h.Command, h.Size)
		}
		if c.w-c.r < int(h.Size) {
			break
		}
		c.rq.hdr = h
		c.rq.payload = c.buf[c.r+wire.HeaderSize : c.r+int(h.Size)]
		c.rq.fds, c.rq.cut = c.in.of(c.r)
		c.message(&c.rq)
		c.r += int(h.Size)
		if c.sendErr != nil {
			return c.sendErr
		}
		if c.refused {
			return errVersion
		}
	}
	return nil
}

// makeRoom moves what is left to the buffer's start, and grows the buffer to a message that
// is longer than it.
func (c *conn) makeRoom() {
	if c.r == c.w {
		c.r, c.w = 0, 0
		return
	}
	left := c.w - c.r
	need := wire.HeaderSize
	if left >= wire.HeaderSize {
		need = int(wire.Parse[wire.Header](c.buf[c.r:]).Size)
	}
	if c.r > 0 {
		copy(c.buf, c.buf[c.r:c.w])
		c.in.shift(c.r)
		c.r, c.w = 0, left
	}
	if need > len(c.buf) {
		c.buf = slices.Grow(c.buf[:left], need-left)
		c.buf = c.buf[:cap(c.buf)]
	}
}

func (c *conn) message(rq *request) {
	if rq.hdr.Flags&wire.TypeMask == wire.TypeReply && c.dmaReply(rq) {
		return
	}
	row := rowOf(rq.hdr.Command)
	c.mark = len(c.out)
	errno := row.check(rq, c.state)
	if errno == 0 {
		errno = c.contained(rq.hdr.Command.String(), func() syscall.Errno { return row.handle(c, rq) })
	}
	if len(rq.fds) > 0 {
		c.srv.discards.close(rq.fds...)
		rq.fds = nil
	}
	k := c.srv.stats.command(rq.hdr.Command)
	add(&k.Messages, 1)
	add(&k.Bytes, uint64(rq.hdr.Size))
	if errno != 0 {
		add(&k.Errors, 1)
	}
	if rq.hdr.Flags&wire.NoReply != 0 {
		add(&k.Posted, 1)
	}
	c.answer(rq.hdr, errno)
}

func (c *conn) dmaReply(rq *request) bool {
	if !c.calls.finish(rq.hdr, rq.payload) {
		return false
	}
	k := c.srv.stats.command(rq.hdr.Command)
	add(&k.Bytes, uint64(rq.hdr.Size))
	if rq.hdr.Flags&wire.Error != 0 {
		add(&k.Errors, 1)
	}
	c.srv.discards.close(rq.fds...)
	rq.fds = nil
	return true
}

// contain runs a call of the device. A panic in it is counted and logged, and the device is told.
func (c *conn) contain(what string, fn func()) {
	defer func() {
		if p := recover(); p != nil {
			add(&c.srv.stats.Panics, 1)
			c.srv.warn(&c.srv.logPanic, "vfio-user device panicked", slog.String("in", what), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			if o, ok := c.dev.(PanicObserver); ok {
				o.Panicked(what, p)
			}
		}
	}()
	fn()
}

// contained is contain for a call with an errno; a panic is an access that fails.
func (c *conn) contained(what string, fn func() syscall.Errno) syscall.Errno {
	errno := syscall.EIO
	c.contain(what, func() { errno = fn() })
	return errno
}

// body returns n zero bytes for the payload of the reply to the present message. It is called
// at most once per message.
func (c *conn) body(n int) []byte {
	if c.mark > 0 && c.mark+wire.HeaderSize+n > batchReply {
		c.flush()
	}
	start := c.mark + wire.HeaderSize
	c.out = slices.Grow(c.out[:c.mark], wire.HeaderSize+n)[:start+n]
	b := c.out[start:]
	clear(b)
	return b
}

// answer completes the reply to a message, or takes it back when none is wanted.
func (c *conn) answer(h wire.Header, errno syscall.Errno) {
	fd := c.outFD
	c.outFD = -1
	if h.Flags&wire.NoReply != 0 {
		c.out = c.out[:c.mark]
		return
	}
	r := wire.Header{ID: h.ID, Command: h.Command, Flags: wire.TypeReply}
	if errno != 0 {
		r.Flags |= wire.Error
		r.Errno = uint32(errno)
		c.out = c.out[:c.mark]
		fd = -1
	}
	if len(c.out) == c.mark {
		c.body(0)
	}
	r.Size = uint32(len(c.out) - c.mark)
	wire.Put(c.out[c.mark:], r)
	c.replies++
	if fd >= 0 {
		c.flushWith(fd)
		return
	}
	c.mark = len(c.out)
}

// flush sends the complete replies and keeps none.
func (c *conn) flush() {
	if c.mark == 0 {
		return
	}
	c.write(c.out[:c.mark], -1)
	c.out = c.out[:0]
	c.mark = 0
}

// flushWith sends the complete replies but the last, and then that one with a descriptor.
func (c *conn) flushWith(fd int) {
	last := c.out[c.mark:]
	c.replies--
	if c.mark > 0 {
		c.write(c.out[:c.mark], -1)
	}
	c.replies = 1
	c.write(last, fd)
	c.out = c.out[:0]
	c.mark = 0
}

func (c *conn) write(p []byte, fd int) {
	if c.sendErr != nil {
		return
	}
	add(&c.srv.stats.Replies, c.replies) // before the write, so that a client that has its reply finds it counted
	add(&c.srv.stats.Writes, 1)
	c.replies = 0
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	sent := 0
	if fd >= 0 {
		sent, c.sendErr = c.sock.sendFD(p, fd)
	}
	if c.sendErr == nil {
		_, c.sendErr = c.sock.send(p[sent:], time.Time{})
	}
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno > 0 && errno < 4096 {
		return errno
	}
	return syscall.EIO
}

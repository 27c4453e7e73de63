// Package client attaches to a vfio-user server, for tests and tools. It acts as a virtual
// machine monitor: it negotiates, asks for the device's description, accesses regions, maps
// memory for DMA, takes interrupts, and answers the server's own DMA requests. It can also
// send what no monitor would: see Send and Call.
//
// # Threads
//
// A Client is driven by its callers, one call at a time (Client.mu): a call writes its message
// and reads until its reply arrives, and answers DMA requests meanwhile, so a round trip costs
// two system calls and no hand-off.
package client

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var le = binary.LittleEndian

// Options of a client. The zero value is good.
type Options struct {
	// Timeout bounds the wait for a reply, even if other messages arrive before it or it
	// arrives slowly, and the wait for the server to accept data; 0 means a minute.
	Timeout time.Duration
	// Capabilities is the JSON proposed in VERSION; "" means what QEMU 11.1 sends.
	Capabilities string
	// NoVersion leaves the negotiation to the caller.
	NoVersion bool
}

// QEMUCapabilities are those that QEMU 11.1.3 proposes.
const QEMUCapabilities = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, ` +
	`"max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}`

// Errno is an errno that the server answered with.
type Errno = syscall.Errno

// ErrProtocol means that the server's answer breaks the protocol.
var ErrProtocol = errors.New("vfio-user server broke the protocol")

// Message is one message as it came.
type Message struct {
	wire.Header
	Payload []byte // valid until the next call
	FDs     []int  // the receiver's to close
}

// Client is a connection to a server.
type Client struct {
	mu    sync.Mutex
	opts  Options
	fd    int
	fdMu  sync.Mutex // Shutdown against Close; after mu
	id    uint16
	caps  Capabilities
	maps  []mapping // for the server's DMA, by address
	limit int       // of the server's max_msg_fds

	buf  []byte // received: buf[r:w]
	r, w int
	fds  []int // received, not yet given to a message
	out  []byte

	onDMA func(cmd wire.Command, addr uint64, n int) error
}

// Capabilities are what the server replied to VERSION, with the specification's defaults.
type Capabilities struct {
	Major, Minor  uint16
	MaxMsgFDs     int    `json:"max_msg_fds"`
	MaxDataXfer   uint32 `json:"max_data_xfer_size"`
	MaxDMAMaps    int    `json:"max_dma_maps"`
	PgSizes       uint64 `json:"pgsizes"`
	WriteMultiple bool   `json:"write_multiple"`
	Migration     struct {
		PgSize uint64 `json:"pgsize"`
	} `json:"migration"`
}

// Dial connects to the server at path and negotiates.
func Dial(path string, o *Options) (*Client, error) {
	fd, err := DialFD(path)
	if err != nil {
		return nil, err
	}
	return NewFD(fd, o)
}

// DialFD connects to the server at path. The socket is the caller's.
func DialFD(path string) (int, error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return -1, err
	}
	return detach(nc)
}

// detach closes nc, and returns a duplicate of its descriptor.
func detach(nc *net.UnixConn) (int, error) {
	raw, err := nc.File()
	nc.Close()
	if err != nil {
		return -1, err
	}
	defer raw.Close()
	fd, err := unix.FcntlInt(raw.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fd, os.NewSyscallError("fcntl", err)
}

// New negotiates on an open connection, which becomes the client's.
func New(nc *net.UnixConn, o *Options) (*Client, error) {
	fd, err := detach(nc)
	if err != nil {
		return nil, err
	}
	return NewFD(fd, o)
}

// NewFD negotiates on a connected stream socket, which becomes the client's.
func NewFD(fd int, o *Options) (*Client, error) {
	c := &Client{fd: fd, buf: make([]byte, 128<<10), limit: wire.DefaultMaxMsgFDs}
	if o != nil {
		c.opts = *o
	}
	if c.opts.Timeout == 0 {
		c.opts.Timeout = time.Minute
	}
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) start() error {
	if err := unix.SetNonblock(c.fd, false); err != nil {
		return err
	}
	tv := unix.NsecToTimeval(int64(c.opts.Timeout))
	for _, way := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, way, &tv); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if c.opts.NoVersion {
		return nil
	}
	text := c.opts.Capabilities
	if text == "" {
		text = QEMUCapabilities
	}
	if _, err := c.Negotiate(0, 0, text); err != nil {
		return fmt.Errorf("negotiate: %w", err)
	}
	return nil
}

// Close disconnects. It does not wait for the server.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	closeFDs(c.fds)
	c.fds = nil
	c.fdMu.Lock()
	defer c.fdMu.Unlock()
	if c.fd < 0 {
		return nil
	}
	err := unix.Close(c.fd)
	c.fd = -1
	return err
}

// Negotiate proposes a version with the capabilities in text, a JSON document, or none if text
// is empty.
func (c *Client) Negotiate(major, minor uint16, text string) (Capabilities, error) {
	payload := le.AppendUint16(le.AppendUint16(nil, major), minor)
	if text != "" {
		payload = append(append(payload, text...), 0)
	}
	m, err := c.Call(wire.Version, payload)
	if err != nil {
		return Capabilities{}, err
	}
	caps, err := ParseVersion(m.Payload)
	if err != nil {
		return caps, err
	}
	if caps.Major != major || caps.Minor > minor {
		return caps, fmt.Errorf("%w: version %d.%d for %d.%d", ErrProtocol, caps.Major, caps.Minor, major, minor)
	}
	if len(m.Payload) > len(payload) {
		return caps, fmt.Errorf("%w: VERSION reply of %d bytes to a request of %d: QEMU would not read it", ErrProtocol, len(m.Payload), len(payload))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.caps, c.limit = caps, caps.MaxMsgFDs
	return caps, nil
}

// ParseVersion reads the payload of a VERSION message.
func ParseVersion(p []byte) (Capabilities, error) {
	caps := Capabilities{MaxMsgFDs: wire.DefaultMaxMsgFDs, MaxDataXfer: wire.DefaultMaxDataXfer, MaxDMAMaps: 65535, PgSizes: 4096}
	if len(p) < wire.VersionSize {
		return caps, fmt.Errorf("%w: VERSION of %d bytes", ErrProtocol, len(p))
	}
	caps.Major, caps.Minor = le.Uint16(p), le.Uint16(p[2:])
	p = p[wire.VersionSize:]
	if len(p) == 0 {
		return caps, nil
	}
	if p[len(p)-1] != 0 {
		return caps, fmt.Errorf("%w: capabilities not NUL-terminated", ErrProtocol)
	}
	doc := struct{ Capabilities *Capabilities }{&caps}
	if err := json.Unmarshal(p[:len(p)-1], &doc); err != nil {
		return caps, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return caps, nil
}

// Capabilities returns what was negotiated.
func (c *Client) Capabilities() Capabilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caps
}

// Call sends one command and returns its reply. An errno of the server is an Errno.
// The payload is valid until the next call.
func (c *Client) Call(cmd wire.Command, payload []byte, fds ...int) (Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.call(cmd, payload, fds)
}

func (c *Client) call(cmd wire.Command, payload []byte, fds []int) (Message, error) {
	id := c.begin(cmd, 0, len(payload))
	c.out = append(c.out, payload...)
	if err := c.send(c.out, fds); err != nil {
		return Message{}, err
	}
	return c.reply(id, cmd)
}

// begin starts a message of n payload bytes in c.out.
func (c *Client) begin(cmd wire.Command, flags uint32, n int) uint16 {
	c.id++
	c.out = wire.Append(c.out[:0], wire.Header{ID: c.id, Command: cmd, Size: uint32(wire.HeaderSize + n), Flags: flags})
	return c.id
}

// reply reads until the reply to message id is there.
func (c *Client) reply(id uint16, cmd wire.Command) (Message, error) {
	var began time.Time
	for {
		m, err := c.next(&began)
		if err != nil {
			return m, fmt.Errorf("%v: %w", cmd, err)
		}
		if m.Flags&wire.TypeMask == wire.TypeCommand {
			if err := c.serve(m); err != nil {
				return m, err
			}
			continue
		}
		if m.ID != id || m.Command != cmd {
			closeFDs(m.FDs)
			return m, fmt.Errorf("%w: reply %d to %v, want %d to %v", ErrProtocol, m.ID, m.Command, id, cmd)
		}
		if m.Flags&wire.Error != 0 {
			if m.Size != wire.HeaderSize || m.Errno == 0 {
				return m, fmt.Errorf("%w: error reply of %d bytes, errno %d", ErrProtocol, m.Size, m.Errno)
			}
			return m, Errno(m.Errno)
		}
		return m, nil
	}
}

// Send writes bytes as they are, with descriptors on the first.
func (c *Client) Send(raw []byte, fds ...int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(raw, fds)
}

// Recv returns the next message that is not a DMA request.
func (c *Client) Recv() (Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var began time.Time
	for {
		m, err := c.next(&began)
		if err != nil || m.Flags&wire.TypeMask != wire.TypeCommand {
			return m, err
		}
		if err := c.serve(m); err != nil {
			return m, err
		}
	}
}

// RecvAny returns the next message, be it a DMA request, and answers nothing.
func (c *Client) RecvAny() (Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next(new(time.Time))
}

// CloseWrite ends the client's direction of the stream and leaves the other open.
func (c *Client) CloseWrite() error { return unix.Shutdown(c.fd, unix.SHUT_WR) }

func (c *Client) send(p []byte, fds []int) error {
	for len(p) > 0 {
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		n, err := unix.SendmsgN(c.fd, p, rights, nil, unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("nothing taken within %v: %w", c.opts.Timeout, os.ErrDeadlineExceeded)
		case err != nil:
			return os.NewSyscallError("sendmsg", err)
		}
		p, fds = p[n:], nil
	}
	return nil
}

// next returns the next message. The server sends descriptors in a message of their own, so they
// belong to the message that ends what was read with them. began is the start of the wait for an
// answer, zero at first.
func (c *Client) next(began *time.Time) (Message, error) {
	for {
		if m, ok, err := c.parse(); ok || err != nil {
			return m, err
		}
		if began.IsZero() {
			*began = time.Now()
		} else if time.Since(*began) > c.opts.Timeout {
			return Message{}, c.late()
		}
		if err := c.fill(); err != nil {
			return Message{}, err
		}
	}
}

func (c *Client) parse() (m Message, ok bool, err error) {
	have := c.w - c.r
	if have < wire.HeaderSize {
		return m, false, nil
	}
	m.Header = wire.Parse[wire.Header](c.buf[c.r:])
	if m.Size < wire.HeaderSize || m.Size > 128<<20 {
		return m, false, fmt.Errorf("%w: %v of %d bytes", ErrProtocol, m.Command, m.Size)
	}
	if have < int(m.Size) {
		return m, false, nil
	}
	m.Payload = c.buf[c.r+wire.HeaderSize : c.r+int(m.Size)]
	c.r += int(m.Size)
	if c.r == c.w {
		m.FDs, c.fds = c.fds, nil
	}
	return m, true, nil
}

func (c *Client) fill() error {
	c.room()
	var oob [unix.SizeofCmsghdr + 253*4 + 4]byte
	for {
		n, oobn, _, _, err := unix.Recvmsg(c.fd, c.buf[c.w:], oob[:], unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return c.late()
		case err != nil:
			return err
		}
		c.w += n
		if oobn > 0 {
			c.takeFDs(oob[:oobn])
		}
		if n == 0 {
			return io.EOF
		}
		return nil
	}
}

func (c *Client) late() error {
	return fmt.Errorf("no answer within %v: %w", c.opts.Timeout, os.ErrDeadlineExceeded)
}

func (c *Client) takeFDs(oob []byte) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			c.fds = append(c.fds, fds...)
		}
	}
}

func (c *Client) room() {
	left := copy(c.buf, c.buf[c.r:c.w])
	c.r, c.w = 0, left
	need := wire.HeaderSize
	if left >= wire.HeaderSize {
		need = int(wire.Parse[wire.Header](c.buf).Size)
	}
	if need > len(c.buf) {
		c.buf = append(c.buf, make([]byte, need-len(c.buf))...)
	}
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Shutdown ends the connection both ways, and with it calls that wait. Close is still due. Any
// goroutine may call it, also beside or after Close.
func (c *Client) Shutdown() error {
	c.fdMu.Lock()
	defer c.fdMu.Unlock()
	if c.fd < 0 {
		return nil
	}
	return unix.Shutdown(c.fd, unix.SHUT_RDWR)
}

// Buffered reports whether more has arrived than the messages that were returned.
func (c *Client) Buffered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w > c.r
}

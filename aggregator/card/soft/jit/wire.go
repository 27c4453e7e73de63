package jit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/sandbox"
)

// Version is that of the protocol and of the shared memory. Both sides are installed together.
const Version = 3

// Assemble is the first argument of an umbra-jit that makes assembly of IR, and serves no guest.
const Assemble = "assemble"

// Kind says what a message is.
type Kind uint32

// The messages. Numbers that are not named are zero.
const (
	// Hello is the process's first: A is Version, and Body says what it lacks. Its file is the listener of package sandbox,
	// which judges what it maps of CardFD. With B it cannot serve, and Body says why.
	Hello Kind = iota + 1
	// Setup is the answer, with the shared memory as its file.
	Setup
	// Run asks for a step of launch A, of as many slots as B says, for C nanoseconds. D is the version of the places: those
	// of another version are no longer true. Body describes the launch, if the process does not know it.
	Run
	// Ask asks for memory around address A; B: to be written.
	Ask
	// Give names it: C bytes at address A are at D of file B. E has rights. C is zero if there is none. A file that is new
	// comes with the message.
	Give
	// Ended is the answer of Run: A is a Verdict, B the slot of Stuck, C and D the warp instructions that ran as machine
	// code and otherwise, E the nanoseconds of all compilations so far, F their number. Body says why a program was Refused.
	Ended
)

// Verdict says how a Run ended.
type Verdict uint64

// The verdicts.
const (
	Over      Verdict = iota // the time is over, or the grid has ended
	Stuck                    // the block of a slot needs the server's executor
	Compiling                // nothing ran, the program is being compiled
	Refused                  // nothing ran, and nothing will: the program is not compiled
	verdicts
)

// What a process has from the start: the connection, and the card's memory, which is file CardFile.
const (
	ConnFD   = 3
	CardFD   = 4
	CardFile = 0
)

// Rights of Give.
const (
	GiveWrite = 1 << iota
	GiveStep  // only true until the end of the step
)

// A Message is what the two sides send.
type Message struct {
	Kind             Kind
	A, B, C, D, E, F uint64
	Body             []byte
}

const (
	headBytes = 4 + 6*8
	// MaxBody bounds the body: a description, or a text.
	MaxBody = 4096
)

// Conn is an end of the connection, which keeps the borders of messages. It belongs to one goroutine at a time.
type Conn struct {
	fd     int
	buf    [headBytes + MaxBody]byte
	rights [64]byte
}

// NewConn makes an end of a descriptor, which then belongs to it.
func NewConn(fd int) *Conn { return &Conn{fd: fd} }

// pair makes a connection.
func pair() (*Conn, *os.File, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return NewConn(p[0]), os.NewFile(uintptr(p[1]), "compiler"), nil
}

// Close closes the end.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Send sends a message, with a file unless it is nil. It does not wait: a side that does not receive what it asked
// for is not served.
func (c *Conn) Send(m *Message, f *os.File) error {
	binary.LittleEndian.PutUint32(c.buf[:], uint32(m.Kind))
	for i, v := range []uint64{m.A, m.B, m.C, m.D, m.E, m.F} {
		binary.LittleEndian.PutUint64(c.buf[4+8*i:], v)
	}
	n := headBytes + copy(c.buf[headBytes:], m.Body)
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	for {
		_, err := unix.SendmsgN(c.fd, c.buf[:n], rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Receive receives a message. Its body is valid until the next call of the Conn. It fails with unix.EAGAIN after
// the time that patience set.
func (c *Conn) Receive(m *Message) (f *os.File, err error) {
	var n, rights int
	for {
		n, rights, _, _, err = unix.Recvmsg(c.fd, c.buf[:], c.rights[:], unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if rights > 0 {
		f = sandbox.Given(c.rights[:rights])
	}
	if n == 0 {
		err = ErrEnded
	} else if n < headBytes {
		err = fmt.Errorf("a message of %d bytes: want at least %d", n, headBytes)
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	m.Kind = Kind(binary.LittleEndian.Uint32(c.buf[:]))
	for i, to := range []*uint64{&m.A, &m.B, &m.C, &m.D, &m.E, &m.F} {
		*to = binary.LittleEndian.Uint64(c.buf[4+8*i:])
	}
	m.Body = c.buf[headBytes:n]
	return f, nil
}

// ErrEnded is of a connection whose other end is closed.
var ErrEnded = errors.New("the other side has closed the connection")

// patience sets how long a Receive waits.
func (c *Conn) patience(ns int64) error {
	t := unix.NsecToTimeval(ns)
	return unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t)
}

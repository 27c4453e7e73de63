package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/sandbox"
)

// A message is its length (4 bytes), a request or an answer, and what follows that: steps or text. A file
// travels with the first byte. Numbers are little endian, and steps as they lie in memory. Both sides are the same program, so that
// there is no version.

// Limits of a message.
const (
	lengthBytes = 4
	maxSteps    = 4096
	maxText     = 1024
)

// request is what the server asks for.
type request struct {
	Call    call
	Number  uint32 // of the object, space or channel
	A, B    uint64 // arguments
	Channel Channel
}

// kind says what an answer is.
type kind uint32

const (
	answered  kind = iota
	failed         // the text says why; Status is the driver's
	completed      // Number has a bit for each engine, see engineBit
	stopped        // the channel Number; the text is of the fault
	logged         // a text for the server's log
)

// answer is what the process says.
type answer struct {
	Kind      kind
	Number    uint32
	Status    uint32
	Xid       uint32
	FaultType uint32
	FaultVA   uint64
}

var (
	requestBytes = binary.Size(request{})
	answerBytes  = binary.Size(answer{})
)

// engineBit is the bit of an engine in an answer.
func engineBit(engine int32) uint32 { return 1 << uint(engine+1) }

// message begins a message.
func message(b []byte, v any) []byte {
	b = append(b[:0], 0, 0, 0, 0)
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(fmt.Sprintf("worker: %T has no fixed size: %v", v, err))
	}
	return b
}

// errNonsense is of a message that the other side would not send.
var errNonsense = errors.New("a message of a wrong form")

// conn is an end of the socket. One goroutine sends at a time, and one receives.
type conn struct {
	*net.UnixConn
	rights [64]byte
}

func newConn(f *os.File) (*conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("file 3 is no UNIX socket: the server starts this command, not a user")
	}
	return &conn{UnixConn: u}, nil
}

// send sends what [message] began, with a file unless it is nil.
func (c *conn) send(b []byte, f *os.File) error {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-lengthBytes))
	if f != nil {
		n, _, err := c.WriteMsgUnix(b[:lengthBytes], unix.UnixRights(int(f.Fd())), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := c.Write(b)
	return err
}

// receive receives a message of at most limit bytes, into b where it fits.
func (c *conn) receive(b []byte, limit int) (body []byte, f *os.File, err error) {
	defer func() {
		if err != nil && f != nil {
			f.Close()
		}
	}()
	var length [lengthBytes]byte
	n, rights, _, _, err := c.ReadMsgUnix(length[:], c.rights[:])
	if rights > 0 {
		f = sandbox.Given(c.rights[:rights])
	}
	if err != nil {
		return nil, f, err
	}
	if _, err := io.ReadFull(c, length[n:]); err != nil {
		return nil, f, err
	}
	size := int(binary.LittleEndian.Uint32(length[:]))
	if size > limit {
		return nil, f, fmt.Errorf("%w: %d bytes, at most %d are allowed", errNonsense, size, limit)
	}
	if cap(b) < size {
		b = make([]byte, size)
	}
	_, err = io.ReadFull(c, b[:size])
	return b[:size], f, err
}

// decode takes a structure from the beginning of a message's body, and returns the rest.
func decode(body []byte, v any, size int) ([]byte, error) {
	if _, err := binary.Decode(body, binary.LittleEndian, v); err != nil {
		return nil, fmt.Errorf("%w: %d bytes, %d are needed", errNonsense, len(body), size)
	}
	return body[size:], nil
}

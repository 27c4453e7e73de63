package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var le = binary.LittleEndian

// message is one message of a client's, right or wrong.
type message struct {
	wire.Header
	payload []byte
	fds     []int
	size    uint32 // in the header, if sized
	sized   bool
}

const theID = 0x5a17

func command(cmd wire.Command, payload []byte, fds ...int) message {
	return message{Header: wire.Header{ID: theID, Command: cmd}, payload: payload, fds: fds}
}

func (m message) with(flags uint32) message  { m.Flags = flags; return m }
func (m message) id(id uint16) message       { m.ID = id; return m }
func (m message) sizeField(n uint32) message { m.size, m.sized = n, true; return m }

func (m message) bytes() []byte {
	b := wire.Message(m.Header, m.payload)
	if m.sized {
		le.PutUint32(b[4:], m.size)
	}
	return b
}

func versionMessage(major, minor uint16, text string) message {
	p := le.AppendUint16(le.AppendUint16(nil, major), minor)
	if text != "" {
		p = append(append(p, text...), 0)
	}
	return command(wire.Version, p)
}

func deviceInfoMessage(argsz uint32) message {
	return command(wire.DeviceGetInfo, wire.Append(nil, wire.DeviceInfo{Argsz: argsz}))
}

func regionInfoMessage(index, argsz uint32) message {
	return command(wire.DeviceGetRegionInfo, wire.Append(nil, wire.RegionInfo{Argsz: argsz, Index: index}))
}

func irqInfoMessage(index, argsz uint32) message {
	return command(wire.DeviceGetIRQInfo, wire.Append(nil, wire.IRQInfo{Argsz: argsz, Index: index}))
}

func readMessage(region uint32, off uint64, n uint32) message {
	return command(wire.RegionRead, wire.Append(nil, wire.RegionAccess{Offset: off, Region: region, Count: n}))
}

func writeMessage(region uint32, off uint64, n uint32, data []byte) message {
	return command(wire.RegionWrite, append(wire.Append(nil, wire.RegionAccess{Offset: off, Region: region, Count: n}), data...))
}

func mapMessage(addr, size, off uint64, flags uint32, fds ...int) message {
	return command(wire.DMAMap, wire.Append(nil, wire.DMAMapRequest{Argsz: wire.DMAMapSize, Flags: flags, Offset: off, Addr: addr, Size: size}), fds...)
}

func unmapMessage(addr, size uint64, flags uint32) message {
	return command(wire.DMAUnmap, wire.Append(nil, wire.DMAUnmapRequest{Argsz: wire.DMAUnmapSize, Flags: flags, Addr: addr, Size: size}))
}

func irqMessage(flags, index, start, count uint32, data []byte, fds ...int) message {
	s := wire.IRQSet{Argsz: uint32(wire.IRQSetSize + len(data)), Flags: flags, Index: index, Start: start, Count: count}
	return command(wire.DeviceSetIRQs, append(wire.Append(nil, s), data...), fds...)
}

func featureMessage(flags uint32, data []byte) message {
	return command(wire.DeviceFeature, append(wire.Append(nil, wire.Feature{Argsz: uint32(wire.FeatureSize + len(data)), Flags: flags}), data...))
}

// kind is how a server took a message.
type kind int

const (
	answered kind = iota // with a reply
	refused              // with an error reply
	closed               // by ending the connection
	silent               // not within the time-out
	nonsense             // with something that is no reply to the message
)

// answer is what came of a message.
type answer struct {
	kind  kind
	errno syscall.Errno
	msg   wire.Header
	body  []byte // a copy
	fds   int    // descriptors that came along, closed by now
	err   error
}

func (a answer) String() string {
	switch a.kind {
	case answered:
		text := "a bare reply"
		if len(a.body) > 0 {
			text = fmt.Sprintf("a reply of %d bytes", len(a.body))
		}
		if a.fds > 0 {
			text += fmt.Sprintf(" with %d descriptors", a.fds)
		}
		return text
	case refused:
		return errnoName(a.errno)
	case closed:
		return "the connection closed"
	case silent:
		return "no answer in time"
	default:
		return a.err.Error()
	}
}

func errnoName(e syscall.Errno) string {
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", uint(e))
}

func ask(c *client.Client, m message) answer {
	if err := c.Send(m.bytes(), m.fds...); err != nil {
		return socketAnswer(err)
	}
	return receive(c, m)
}

func socketAnswer(err error) answer {
	switch {
	case disconnected(err):
		return answer{kind: closed}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return answer{kind: silent}
	}
	return answer{kind: nonsense, err: err}
}

func receive(c *client.Client, m message) answer {
	r, err := c.Recv()
	if err != nil {
		return socketAnswer(err)
	}
	for _, fd := range r.FDs {
		unix.Close(fd)
	}
	a := answer{msg: r.Header, body: append([]byte(nil), r.Payload...), fds: len(r.FDs)}
	switch {
	case r.ID != m.ID || r.Command != m.Command:
		a.kind, a.err = nonsense, fmt.Errorf("a reply with id %#x to %v, for id %#x and %v", r.ID, r.Command, m.ID, m.Command)
	case r.Flags&^(wire.TypeMask|wire.NoReply|wire.Error) != 0:
		a.kind, a.err = nonsense, fmt.Errorf("a reply with reserved flags: %#x", r.Flags)
	case r.Flags&wire.Error == 0:
		a.kind = answered
	case r.Errno == 0 || r.Errno > 4095:
		a.kind, a.err = nonsense, fmt.Errorf("an error reply with errno %d", r.Errno)
	default:
		a.kind, a.errno = refused, syscall.Errno(r.Errno)
	}
	return a
}

// alive requests the device's description: a connection in step answers.
func alive(c *client.Client) error {
	a := ask(c, deviceInfoMessage(wire.DeviceInfoSize).id(0x7001))
	if a.kind != answered || len(a.body) < wire.DeviceInfoSize {
		return fmt.Errorf("the next message got %v", a)
	}
	return nil
}

// expectation judges an answer. It returns the fault, or "".
type expectation func(s *session, a answer) string

// oneMessage makes a case of one message on a connection that has negotiated. The text is not
// empty if the device lacks what the case needs.
func oneMessage(name, does string, msg func(s *session) (message, string), want expectation) Case {
	return Case{Name: name, Does: does, run: func(s *session) finding {
		m, why := msg(s)
		if why != "" {
			return absent("%s", why)
		}
		return judge(s, s.attach(), m, want)
	}}
}

// judge sends m and holds the answer against want. A connection that is not closed has to be in
// step afterwards.
func judge(s *session, c *client.Client, m message, want expectation) finding {
	a := ask(c, m)
	if fault := want(s, a); fault != "" {
		return fail("%s", fault)
	}
	if a.kind == answered || a.kind == refused {
		if err := alive(c); err != nil {
			return fail("%v, but then %v", a, err)
		}
	}
	return pass("%v", a)
}

func message1(name, does string, m message, want expectation) Case {
	return oneMessage(name, does, func(*session) (message, string) { return m, "" }, want)
}

// choice marks a case as one that the specification does not settle.
func choice(c Case) Case {
	c.Mark = Choice
	return c
}

func isRefused(_ *session, a answer) string {
	if a.kind != refused {
		return fmt.Sprintf("%v, where an error was due", a)
	}
	return ""
}

func refusedWith(errnos ...syscall.Errno) expectation {
	return func(_ *session, a answer) string {
		if a.kind == refused {
			for _, e := range errnos {
				if a.errno == e {
					return ""
				}
			}
		}
		return fmt.Sprintf("%v, where an error was due: one of %v", a, errnos)
	}
}

func isAnswered(n int) expectation {
	return func(_ *session, a answer) string {
		if a.kind != answered || len(a.body) != n {
			return fmt.Sprintf("%v, where a reply of %d bytes was due", a, n)
		}
		return ""
	}
}

var bare = isAnswered(0)

func anyOf(wants ...expectation) expectation {
	return func(s *session, a answer) string {
		text := ""
		for _, w := range wants {
			fault := w(s, a)
			if fault == "" {
				return ""
			}
			text = fault
		}
		return text
	}
}

func isClosed(_ *session, a answer) string {
	if a.kind != closed {
		return fmt.Sprintf("%v, where the connection's end was due", a)
	}
	return ""
}

// reply sends a message whose reply has to have n bytes of payload, or any number if n is
// negative. Another answer fails the case.
func reply(c *client.Client, m message, n int, step string, args ...any) answer {
	a := ask(c, m)
	if a.kind != answered || n >= 0 && len(a.body) != n {
		panic(stop{fmt.Errorf("%s got %v", fmt.Sprintf(step, args...), a)})
	}
	return a
}

func served(_ *session, a answer) string {
	if a.kind != answered {
		return fmt.Sprintf("%v, where a reply was due", a)
	}
	return ""
}

var (
	refusedOrClosed  = anyOf(isClosed, isRefused)
	servedOrRefused  = anyOf(served, isRefused)
	whateverInBounds = anyOf(served, isRefused, isClosed)
)

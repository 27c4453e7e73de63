package gsp

import "fmt"

// An element begins with a header of its own, and then that of the call.
const (
	elementChecksum = 0x20
	elementSequence = 0x24
	elementPages    = 0x28
	elementHeader   = 0x30

	maxElementPages = 16

	callVersion   = elementHeader + 0x00
	callSignature = elementHeader + 0x04
	callLength    = elementHeader + 0x08 // from here on: header and payload
	callFunction  = elementHeader + 0x0c
	callResult    = elementHeader + 0x10
	callPrivate   = elementHeader + 0x14
	callSequence  = elementHeader + 0x18
	callPayload   = elementHeader + callHeader
	callHeader    = 0x20

	// maxPayload is what one element carries.
	maxPayload = maxElementPages*pageSize - callPayload

	headerVersion = 0x03000000
	signature     = 'C'<<24 | 'P'<<16 | 'R'<<8 | 'V'
)

// MaxCall bounds the payload of a call, in bytes. The longest that drivers send lists the pages of a
// few MiB.
const MaxCall = 1 << 20

// fnContinue is the function of elements that continue a call.
const fnContinue = 71

// Call is a remote procedure call, or its reply: the payload of a call with the results filled in.
type Call struct {
	Function uint32
	Result   uint32
	Sequence uint32
	Payload  []byte
}

// parse reads an element.
func parse(m []byte) (c Call, err error) {
	length := le.Uint32(m[callLength:])
	switch {
	case le.Uint32(m[callVersion:]) != headerVersion || le.Uint32(m[callSignature:]) != signature:
		return c, fmt.Errorf("no call: version %#x, signature %#x", le.Uint32(m[callVersion:]), le.Uint32(m[callSignature:]))
	case length < callHeader || uint64(length) > uint64(len(m)-elementHeader):
		return c, fmt.Errorf("a call of %d bytes in an element of %d", length, len(m))
	}
	return Call{
		Function: le.Uint32(m[callFunction:]), Result: le.Uint32(m[callResult:]), Sequence: le.Uint32(m[callSequence:]),
		Payload: m[callPayload : elementHeader+length],
	}, nil
}

// elements returns the elements that carry the call: a payload that does not fit one is continued.
func (c *Call) elements() (list [][]byte) {
	fn, rest := c.Function, c.Payload
	for first := true; first || len(rest) > 0; first = false {
		n := min(len(rest), maxPayload)
		m := make([]byte, callPayload+n)
		for _, f := range []struct {
			at int
			v  uint32
		}{
			{callVersion, headerVersion}, {callSignature, signature}, {callLength, uint32(callHeader + n)}, {callFunction, fn},
			{callResult, c.Result}, {callPrivate, c.Result}, {callSequence, c.Sequence},
		} {
			le.PutUint32(m[f.at:], f.v)
		}
		copy(m[callPayload:], rest)
		list, rest, fn = append(list, m), rest[n:], fnContinue
	}
	return list
}

// Calls assembles calls from elements and sends replies. A reply for which the guest leaves no room
// is kept until there is some.
type Calls struct {
	q *Queues
	CallsState
}

// CallsState is what is under way.
type CallsState struct {
	// Begun is the call of which parts are to come, nil if there is none.
	Begun *Call `json:"begun"`
	// Pending are elements of replies that were not sent yet, oldest first, and Events those of events.
	Pending [][]byte `json:"pending"`
	Events  [][]byte `json:"events"`
}

// maxPending bounds the elements that a guest which does not read leaves with us: more than the
// replies to all commands that can lie in a queue of its own.
const maxPending = 2 * elements

// NewCalls returns what calls go through.
func NewCalls(q *Queues) *Calls { return &Calls{q: q} }

// whole is how long a function says that its payload is, in all parts.
type whole func(function uint32, payload []byte) int

// Next takes the next element, and returns the call that it completes, nil if there are more parts to
// come. It takes none while replies wait for the guest.
func (s *Calls) Next(size whole) (c *Call, taken bool, err error) {
	if !s.flush() {
		return nil, false, nil
	}
	m, err := s.q.Receive()
	if m == nil || err != nil {
		return nil, false, err
	}
	part, err := parse(m)
	if err == nil {
		c, err = s.add(&part, size)
	}
	return c, true, err
}

// add continues the call that was begun, or begins one. It returns the call if it is complete.
func (s *Calls) add(c *Call, size whole) (*Call, error) {
	switch {
	case c.Function != fnContinue && s.Begun != nil:
		return nil, fmt.Errorf("call %d within call %d", c.Function, s.Begun.Function)
	case c.Function != fnContinue:
	case s.Begun == nil:
		return nil, fmt.Errorf("a continuation of no call")
	case len(c.Payload) == 0:
		return nil, fmt.Errorf("a continuation of call %d without a payload", s.Begun.Function)
	default:
		s.Begun.Payload = append(s.Begun.Payload, c.Payload...)
		c, s.Begun = s.Begun, nil
	}
	switch n := size(c.Function, c.Payload); {
	case n > MaxCall:
		return nil, fmt.Errorf("call %d of %d bytes: the most are %d", c.Function, n, MaxCall)
	case n > len(c.Payload) && len(c.Payload)%maxPayload == 0 && len(c.Payload) > 0:
		s.Begun = c
		return nil, nil
	}
	return c, nil
}

// Send sends a reply.
func (s *Calls) Send(c Call) { s.Pending = append(s.Pending, c.elements()...); s.flush() }

// Event sends a message of our own accord, of one element, when there is room. It reports false if it was
// dropped, because the guest does not read.
func (s *Calls) Event(function uint32, payload []byte) bool {
	if len(s.Events) == maxPending {
		return false
	}
	s.Events = append(s.Events, (&Call{Function: function, Payload: payload}).elements()...)
	return true
}

// Deliver sends events, and reports whether there was room for any. They leave half of the queue to
// replies: a driver that waits for one reads, but does not kick.
func (s *Calls) Deliver() bool {
	n := len(s.Events)
	s.send(&s.Events, elements/2)
	return len(s.Events) < n
}

// flush sends replies, and reports whether none is left.
func (s *Calls) flush() bool { return s.send(&s.Pending, 0) }

// send sends elements while so many others have room. A status queue that cannot be written loses them.
func (s *Calls) send(list *[][]byte, spare uint32) bool {
	for len(*list) > 0 {
		sent, err := s.q.Send((*list)[0], spare)
		if err != nil {
			*list = nil
			return true
		}
		if !sent {
			return false
		}
		*list = (*list)[1:]
	}
	return true
}

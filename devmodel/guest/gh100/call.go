package gh100

import "fmt"

// Where the queues lie in the shared memory.
const (
	queueSize  = 0x40000
	elements   = queueSize/pageSize - 1
	commands   = pageSize
	status     = commands + queueSize
	sharedSize = status + queueSize
)

// Message is a reply or an event.
type Message struct {
	Function, Result uint32
	Payload          []byte
}

func (d *Driver) word(off uint32) uint32 { return le.Uint32(d.queues[off:]) }

func element(queue, i uint32) uint32 { return queue + pageSize + i%elements*pageSize }

// Send puts a call, of one element, into the queue, and lets GSP look at it.
func (d *Driver) Send(function uint32, payload []byte) {
	n := uint32(0x50+len(payload)+pageSize-1) / pageSize
	d.Wait("room for a call", func() bool { return (d.write+elements-d.word(status+0x20))%elements+n < elements })
	m := append(Fields{0x28: uint64(n), 0x30: 0x03000000, 0x34: 'C'<<24 | 'P'<<16 | 'R'<<8 | 'V',
		0x38: uint64(0x20 + len(payload)), 0x3c: uint64(function)}.Bytes(0x50), payload...)
	for ; len(m) > 0; m = m[min(len(m), pageSize):] {
		copy(d.queues[element(commands, d.write):], m[:min(len(m), pageSize)])
		d.write = (d.write + 1) % elements
	}
	le.PutUint32(d.queues[commands+0x10:], d.write)
	d.Write32(0x110c00, 0)
}

// Receive takes the next message, false if there is none. One of several elements is not put together.
func (d *Driver) Receive() (m Message, there bool) {
	if d.read == d.word(status+0x10) {
		return m, false
	}
	at, p := element(status, d.read), []byte(nil)
	for range d.word(at + 0x28) {
		p = append(p, d.queues[element(status, d.read):][:pageSize]...)
		d.read = (d.read + 1) % elements
	}
	le.PutUint32(d.queues[commands+0x20:], d.read)
	return Message{le.Uint32(p[0x3c:]), le.Uint32(p[0x40:]), p[0x50 : 0x30+le.Uint32(p[0x38:])]}, true
}

// Reply waits for the reply to a call, and returns its payload. Events that come before are kept.
func (d *Driver) Reply(function uint32) []byte {
	var m Message
	d.Wait(fmt.Sprintf("reply to call %d", function), func() (there bool) {
		for m, there = d.Receive(); there && m.Function != function; m, there = d.Receive() {
			d.Events = append(d.Events, m)
		}
		return there
	})
	d.must(m.Result)
	return m.Payload
}

// Call calls a function and returns the payload of its reply.
func (d *Driver) Call(function uint32, payload []byte) []byte {
	d.Send(function, payload)
	return d.Reply(function)
}

func (d *Driver) must(result uint32) {
	if result != 0 {
		d.Fail(fmt.Sprintf("guest/gh100: GSP answers with status %#x", result))
	}
}

// Fields are values by offset: of 32 bits, or of 64 where one needs them.
type Fields map[int]uint64

// Bytes returns a structure with the values.
func (f Fields) Bytes(size int) []byte {
	p := make([]byte, size)
	for at, v := range f {
		if v>>32 != 0 {
			le.PutUint64(p[at:], v)
		} else {
			le.PutUint32(p[at:], uint32(v))
		}
	}
	return p
}

// Alloc allocates an object and returns the status.
func (d *Driver) Alloc(client, parent, handle, class uint32, params []byte) uint32 {
	p := Fields{0: uint64(client), 4: uint64(parent), 8: uint64(handle), 0xc: uint64(class), 0x14: uint64(len(params))}.Bytes(0x20)
	return le.Uint32(d.Call(103, append(p, params...))[0x10:])
}

// Control calls a control of an object, and returns the status.
func (d *Driver) Control(client, object, number uint32, params []byte) uint32 {
	return d.begin(client, object, number, params)()
}

// begin is Control up to what waits for the reply.
func (d *Driver) begin(client, object, number uint32, params []byte) (status func() uint32) {
	p := Fields{0: uint64(client), 4: uint64(object), 8: uint64(number), 0x10: uint64(len(params))}.Bytes(0x18)
	d.Send(76, append(p, params...))
	return func() uint32 { return le.Uint32(d.Reply(76)[0xc:]) }
}

// Free frees an object with all that is below it, and returns the status.
func (d *Driver) Free(client, handle uint32) uint32 {
	return le.Uint32(d.Call(10, Fields{0: uint64(client), 8: uint64(handle)}.Bytes(0x10))[0xc:])
}

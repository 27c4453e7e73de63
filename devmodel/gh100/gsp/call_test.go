package gsp

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ram is a guest's memory from address 0 on.
type ram []byte

func (r ram) Read(addr uint64, p []byte) bool {
	if addr > uint64(len(r)) || uint64(len(p)) > uint64(len(r))-addr {
		return false
	}
	copy(p, r[addr:])
	return true
}

func (r ram) Write(addr uint64, p []byte) bool {
	if addr > uint64(len(r)) || uint64(len(p)) > uint64(len(r))-addr {
		return false
	}
	copy(r[addr:], p)
	return true
}

// Where a driver has its structures.
const (
	paramsAt = 0x1000
	descAt   = 0x1100
	listAt   = 0x2000
	argsAt   = 0x3000
	sharedAt = 0x10000
	shared   = 2*queueSize/pageSize + 1
	ramSize  = sharedAt + 2*shared*pageSize
)

// driver is the other side of the queues, as a guest has it. Its pages lie in reverse order, with gaps.
type driver struct {
	ram
	write, read uint32
	sequence    uint32
}

func newDriver() *driver {
	d := &driver{ram: make(ram, ramSize)}
	for i := range uint64(shared) {
		le.PutUint64(d.ram[d.page(0)+8*i:], d.page(i))
	}
	for i, v := range []uint64{sharedAt + 2*(shared-1)*pageSize, shared, pageSize, pageSize + queueSize} {
		le.PutUint64(d.ram[argsAt+8*i:], v)
	}
	le.PutUint64(d.ram[descAt:], magicBoot)
	le.PutUint64(d.ram[paramsAt+paramsDesc:], descAt)
	le.PutUint64(d.ram[paramsAt+paramsArgs:], listAt)
	for i, name := range []string{"LOGINIT", "LOGRM", "RMARGS"} {
		v := uint64(0)
		for _, c := range name {
			v = v<<8 | uint64(c)
		}
		le.PutUint64(d.ram[listAt+i*listEntry:], v)
		le.PutUint64(d.ram[listAt+i*listEntry+8:], argsAt)
	}
	return d
}

// page is where page i of the queues lies.
func (d *driver) page(i uint64) uint64 { return sharedAt + 2*(shared-1-i)*pageSize }

// at is the memory of an offset in the queues.
func (d *driver) at(off uint32) []byte {
	return d.ram[d.page(uint64(off/pageSize))+uint64(off%pageSize):][:pageSize-off%pageSize]
}

const (
	commandsAt = pageSize
	statusAt   = pageSize + queueSize
)

// push submits a call. It reports false if there is no room for all of it.
func (d *driver) push(c Call) bool {
	list := c.elements()
	pages := uint32(0)
	for _, m := range list {
		pages += uint32(len(m)+pageSize-1) / pageSize
	}
	if used(le.Uint32(d.at(statusAt+headRead)), d.write)+pages >= elements {
		return false
	}
	for _, m := range list {
		n := uint32(len(m)+pageSize-1) / pageSize
		le.PutUint32(m[elementPages:], n)
		for ; len(m) > 0; m = m[min(len(m), pageSize):] {
			copy(d.at(element(commandsAt, d.write)), m)
			d.write = (d.write + 1) % elements
		}
	}
	le.PutUint32(d.at(commandsAt+headWrite), d.write)
	return true
}

// pull takes an element that GSP sent, nil if there is none.
func (d *driver) pull(t require.TestingT) []byte {
	if d.read == le.Uint32(d.at(statusAt+headWrite)) {
		return nil
	}
	n := le.Uint32(d.at(element(statusAt, d.read))[elementPages:])
	var m []byte
	for range n {
		m = append(m, d.at(element(statusAt, d.read))...)
		d.read = (d.read + 1) % elements
	}
	le.PutUint32(d.at(commandsAt+headRead), d.read)
	require.Equal(t, d.sequence, le.Uint32(m[elementSequence:]))
	d.sequence++
	require.Zero(t, checksum(m))
	return m
}

func open(t require.TestingT, d *driver) *Calls {
	a, at, err := ReadArguments(d, paramsAt, 0)
	require.NoError(t, err)
	require.EqualValues(t, argsAt, at)
	q, err := OpenQueues(d, a)
	require.NoError(t, err)
	require.EqualValues(t, elements, le.Uint32(d.at(statusAt+headCount)))
	return NewCalls(q)
}

// sized says that the first word of a payload is its length.
func sized(_ uint32, p []byte) int {
	if len(p) < 4 {
		return len(p)
	}
	return int(le.Uint32(p))
}

// TestCalls: every call arrives whole and in order, however its driver and GSP take turns, and so do the
// replies.
func TestCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver()
		s := open(t, d)
		var asked, answered []Call
		var got []byte
		number := uint32(0)
		for range rapid.IntRange(1, 40).Draw(t, "turns") {
			switch rapid.IntRange(0, 2).Draw(t, "who") {
			case 0:
				n := rapid.SampledFrom([]int{4, 100, 4017, 4016, maxPayload - 1, maxPayload, maxPayload + 1, 2*maxPayload + 5000}).Draw(t, "size")
				c := Call{Function: 76, Sequence: number, Payload: bytes.Repeat([]byte{byte(number)}, n)}
				le.PutUint32(c.Payload, uint32(n))
				if d.push(c) {
					asked = append(asked, c)
					number++
				}
			case 1:
				c, taken, err := s.Next(sized)
				require.NoError(t, err)
				require.True(t, taken || c == nil)
				if c == nil {
					break
				}
				require.Equal(t, asked[0], *c)
				asked = asked[1:]
				c.Payload = slices.Clone(c.Payload)
				s.Send(*c)
				answered = append(answered, *c)
			case 2:
				m := d.pull(t)
				if m == nil {
					break
				}
				part, err := parse(m)
				require.NoError(t, err)
				require.Equal(t, len(got) > 0, part.Function == fnContinue)
				got = append(got, part.Payload...)
				if len(got) == len(answered[0].Payload) {
					require.Equal(t, answered[0].Payload, got)
					answered, got = answered[1:], nil
				}
			}
		}
	})
}

// TestEventsLeaveRoom: events that nobody reads do not keep the reply from a driver that waits for it.
func TestEventsLeaveRoom(t *testing.T) {
	d := newDriver()
	s := open(t, d)
	for n := range 1000 {
		require.Equal(t, n < maxPending, s.Event(0x1004, make([]byte, 48)))
	}
	require.True(t, d.push(Call{Function: 76, Payload: make([]byte, 100)}))
	require.True(t, s.Deliver())
	require.False(t, s.Deliver())
	c, _, err := s.Next(sized)
	require.NoError(t, err)
	s.Send(*c)
	got := map[uint32]int{}
	for m := d.pull(t); m != nil; m = d.pull(t) {
		got[le.Uint32(m[callFunction:])]++
	}
	require.Equal(t, map[uint32]int{0x1004: elements / 2, 76: 1}, got)
	require.True(t, s.Deliver())
	require.NotNil(t, d.pull(t), "the others follow")
}

// TestHostileQueues: whatever a guest has in its queues, GSP neither panics nor keeps more than its bounds.
func TestHostileQueues(t *testing.T) { rapid.Check(t, hostileQueues) }

func FuzzQueues(f *testing.F) {
	f.Add(bytes.Repeat([]byte("as much as the longest draw takes"), 1<<10))
	f.Fuzz(rapid.MakeFuzz(hostileQueues))
}

func hostileQueues(t *rapid.T) {
	d := newDriver()
	s := open(t, d)
	word := rapid.SampledFrom([]uint32{0, 1, 15, 16, 17, 62, 63, 64, 1 << 16, 1<<16 - 0x30, 1 << 31, 1<<32 - 1, fnContinue, signature, headerVersion})
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			d.push(Call{Function: word.Draw(t, "function"), Payload: make([]byte, rapid.IntRange(0, 3*maxPayload).Draw(t, "size"))})
		case 1:
			off := rapid.SampledFrom([]uint32{commandsAt + headWrite, commandsAt + headRead, statusAt + headRead, statusAt + headWrite,
				element(commandsAt, d.write+elements-1) + elementPages, element(commandsAt, d.write+elements-1) + callLength,
				element(commandsAt, d.write+elements-1) + callFunction, element(commandsAt, d.write+elements-1) + callPayload}).Draw(t, "where")
			binary.LittleEndian.PutUint32(d.at(off), word.Draw(t, "value"))
		case 2:
			if c, _, _ := s.Next(sized); c != nil {
				s.Send(*c)
			}
		case 3:
			s.Event(0x1004, make([]byte, 48))
			s.Deliver()
		case 4: // the list of pages, which GSP has read
			le.PutUint32(d.at(8*rapid.Uint32Range(0, shared).Draw(t, "page")), word.Draw(t, "address"))
		}
		kept := 0
		for _, m := range append(s.Pending, s.Events...) {
			kept += len(m)
		}
		if s.Begun != nil {
			kept += len(s.Begun.Payload)
		}
		require.LessOrEqual(t, len(s.Pending), maxPending+MaxCall/maxPayload+1)
		require.LessOrEqual(t, len(s.Events), maxPending)
		require.LessOrEqual(t, kept, 8<<20)
	}
}

// TestEndlessCall: a guest that writes empty continuations while GSP takes them does not keep it for ever.
func TestEndlessCall(t *testing.T) {
	u := newGuest(t)
	u.boot()
	looks := 0
	u.g.calls.q.mem = &writing{ram: u.ram, each: func() {
		c := Call{Function: fnContinue}
		if looks++; looks == 1 {
			c = Call{Function: 73, Payload: fields{0: MaxCall}.bytes(maxPayload)}
		}
		require.Less(t, looks, 2*elements)
		u.push(c)
	}}
	require.ErrorContains(t, u.g.Kick(), "without a payload")
}

// writing is the memory of a guest that writes whenever GSP reads the write pointer.
type writing struct {
	ram
	each func()
}

func (w *writing) Read(addr uint64, p []byte) bool {
	if len(p) == 4 {
		w.each()
	}
	return w.ram.Read(addr, p)
}

// TestBadArguments: a boot whose description is wrong names the place.
func TestBadArguments(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int
		v    uint64
		says string
	}{
		{"magic", descAt, 1, "firmware at 0x1100 begins with"},
		{"description outside", paramsAt + paramsDesc, 1 << 40, "description of the firmware at 0x10000000000"},
		{"no arguments", listAt + 2*listEntry, 0, "has none for RM"},
		{"arguments outside", listAt + 2*listEntry + 8, ramSize - 1, "arguments at"},
		{"too many pages", argsAt + argsPages, 513, "in at most 512"},
		{"no whole page", argsAt + argsCommands, 0x1008, "queue of commands at 0x1008"},
		{"outside the pages", argsAt + argsStatus, shared * pageSize, "queue of status"},
		{"one over the other", argsAt + argsStatus, 2 * pageSize, "overlap"},
		{"shared outside", argsAt, 1 << 60, "list of 129 pages"},
		{"unaligned page", sharedAt + 2*(shared-1)*pageSize + 16, 0x123, "page 2 of the queues is at 0x123"},
		{"page outside", sharedAt + 2*(shared-1)*pageSize + 8*65, 1 << 50, "queue of status at 0x4000000000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDriver()
			le.PutUint64(d.ram[c.at:], c.v)
			a, _, err := ReadArguments(d, paramsAt, 0)
			if err == nil {
				_, err = OpenQueues(d, a)
			}
			require.ErrorContains(t, err, c.says)
		})
	}
	d := newDriver()
	le.PutUint64(d.ram[descAt:], magicResume)
	d.ram[argsAt+argsResume] = 1
	a, at, err := ReadArguments(d, paramsAt, argsAt)
	require.NoError(t, err)
	require.True(t, a.Resume)
	require.EqualValues(t, argsAt, at)
}

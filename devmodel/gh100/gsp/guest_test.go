package gsp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
)

const (
	testVRAM   = 4<<30 + Reserved
	testBudget = 100

	internal, internalDev, internalSub = 0xc1e00000, 0xde1e0000, 0x5d1e0000
)

// hostTwin is a host that holds GSP to the contract, and notes what it is asked.
type hostTwin struct {
	t        require.TestingT
	notes    []string
	spaces   map[uint64]bool
	channels map[uint32]Channel
	running  map[uint32]bool
	last     uint64
	refuse   bool
	slow     bool // is busy with what it was asked last
	busy     bool
}

func newHost(t require.TestingT) *hostTwin {
	return &hostTwin{t: t, spaces: map[uint64]bool{}, channels: map[uint32]Channel{}, running: map[uint32]bool{}}
}

func (h *hostTwin) note(format string, args ...any) {
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
	h.busy = h.slow
}

// took returns the notes since the last call.
func (h *hostTwin) took() string {
	s := strings.Join(h.notes, "; ")
	h.notes = nil
	return s
}

func (h *hostTwin) NewSpace(id uint64) {
	require.Greater(h.t, id, h.last)
	h.last, h.spaces[id] = id, true
	h.note("space %d", id)
}

func (h *hostTwin) SetDirectory(id, root uint64, in Target) {
	require.Contains(h.t, h.spaces, id)
	require.Equal(h.t, in == TargetNone, root == 0 && in == 0)
	h.note("directory %d %#x %d", id, root, in)
}

func (h *hostTwin) DropSpace(id uint64) {
	require.Contains(h.t, h.spaces, id)
	for _, c := range h.channels {
		require.NotEqual(h.t, id, c.Space)
	}
	delete(h.spaces, id)
	h.note("drop %d", id)
}

func (h *hostTwin) OpenChannel(c Channel) error {
	if h.refuse {
		return errors.New("no channel is left")
	}
	require.NotContains(h.t, h.channels, c.ID)
	require.Contains(h.t, h.spaces, c.Space)
	require.Less(h.t, c.USERD, uint64(testVRAM))
	h.channels[c.ID] = c
	h.note("open %d in %d on %d ring %#x+%d userd %#x inst %#x admin %t",
		c.ID, c.Space, c.Engine, c.Ring, c.Entries, c.USERD, c.Instance, c.Admin)
	return nil
}

func (h *hostTwin) CloseChannel(id uint32) {
	require.Contains(h.t, h.channels, id)
	delete(h.channels, id)
	delete(h.running, id)
	h.note("close %d", id)
}

func (h *hostTwin) Schedule(id uint32, on bool) {
	require.Contains(h.t, h.channels, id)
	h.running[id] = on
	h.note("schedule %d %t", id, on)
}

func (h *hostTwin) Settled() bool        { return !h.busy }
func (h *hostTwin) SetBAR2(entry uint64) { h.note("bar2 %#x", entry) }
func (h *hostTwin) Announce()            { h.note("announce") }

func (h *hostTwin) Unload() {
	require.False(h.t, h.busy)
	require.Empty(h.t, h.spaces)
	require.Empty(h.t, h.channels)
	h.note("unload")
}

// guest is a driver that calls GSP.
type guest struct {
	*driver
	t      require.TestingT
	g      *GSP
	host   *hostTwin
	log    []string
	events []Call
}

func newGuest(t require.TestingT) *guest {
	u := &guest{driver: newDriver(), t: t, host: newHost(t)}
	u.restore(nil)
	return u
}

// restore makes GSP anew from a state.
func (u *guest) restore(st *State) {
	var err error
	u.g, err = New(Config{VRAM: testVRAM, TPCs: []int{9, 8, 1}, Objects: testBudget, Log: func(format string, args ...any) {
		u.log = append(u.log, fmt.Sprintf(format, args...))
	}}, u.host, u.driver, st)
	require.NoError(u.t, err)
}

// boot starts GSP, with the calls that are in the queue.
func (u *guest) boot() {
	require.NoError(u.t, u.g.Boot(paramsAt))
	require.EqualValues(u.t, 0x1001, u.message().Function)
	require.Nil(u.t, u.pull(u.t))
}

// message takes a message, with all its parts.
func (u *guest) message() (c Call) {
	for first := true; first || len(c.Payload)%maxPayload == 0 && len(c.Payload) > 0; first = false {
		m := u.pull(u.t)
		if m == nil {
			require.False(u.t, first, "no message")
			break
		}
		part, err := parse(m)
		require.NoError(u.t, err)
		if first {
			c = part
		} else {
			c.Payload = append(c.Payload, part.Payload...)
		}
	}
	return c
}

// call makes a call and returns its reply.
func (u *guest) call(function uint32, p []byte) Call {
	require.True(u.t, u.push(Call{Function: function, Result: 0xffffffff, Payload: p}))
	err := u.g.Kick()
	require.NoError(u.t, err)
	c := u.message()
	for ; c.Function > 0x1000; c = u.message() {
		u.events = append(u.events, c)
	}
	require.Equal(u.t, function, c.Function)
	require.Len(u.t, c.Payload, len(p), "a reply is as long as its call")
	return c
}

// fields are values by offset: 32 bits, or more if the value has them.
type fields map[int]uint64

func (f fields) bytes(size int) []byte {
	p := make([]byte, size)
	for at, v := range f {
		if v>>32 != 0 {
			le.PutUint64(p[at:], v)
		} else if at+4 <= size {
			le.PutUint32(p[at:], uint32(v))
		} else {
			p[at] = byte(v)
		}
	}
	return p
}

// alloc makes an object and returns the status.
func (u *guest) alloc(client, parent, handle, class uint32, params []byte) uint32 {
	p := fields{0: uint64(client), 4: uint64(parent), 8: uint64(handle), 0xc: uint64(class), 0x14: uint64(len(params))}.bytes(0x20)
	c := u.call(103, append(p, params...))
	require.Zero(u.t, c.Result)
	return le.Uint32(c.Payload[0x10:])
}

// control calls a control and returns the status and the parameters.
func (u *guest) control(client, object, number uint32, params []byte) (uint32, []byte) {
	p := fields{0: uint64(client), 4: uint64(object), 8: uint64(number), 0xc: 0xffff, 0x10: uint64(len(params))}.bytes(0x18)
	c := u.call(76, append(p, params...))
	require.Zero(u.t, c.Result)
	return le.Uint32(c.Payload[0xc:]), c.Payload[0x18:]
}

// asks calls a control on GSP's own subdevice, which must succeed.
func (u *guest) asks(number uint32, params []byte) []byte {
	status, p := u.control(internal, internalSub, number, params)
	require.Zero(u.t, status, "%#x", number)
	return p
}

func (u *guest) free(client, handle uint32) uint32 {
	c := u.call(10, fields{0: uint64(client), 8: uint64(handle)}.bytes(0x10))
	require.Zero(u.t, c.Result)
	return le.Uint32(c.Payload[0xc:])
}

// Handles as a driver has them.
const dev, sub, vas, chanBase = 0xde1d0000, 0x5d1d0000, 0x90f10000, 0xf1f00000

// client makes a client with a device and an address space.
func (u *guest) client(client uint32, external bool) {
	flags := uint64(0)
	if external {
		flags = 8
	}
	require.Zero(u.t, u.alloc(client, client, client, 0, make([]byte, 120)))
	require.Zero(u.t, u.alloc(client, client, dev, 0x80, make([]byte, 56)))
	require.Zero(u.t, u.alloc(client, dev, sub, 0x2080, make([]byte, 4)))
	require.Zero(u.t, u.alloc(client, dev, vas, 0x90f1, fields{4: flags}.bytes(0x30)))
}

// channelParams describe a channel: 512 entries at 11000, its USERD at 1000 and its instance at 100000000.
func channelParams(id, engine uint64) fields {
	return fields{8: 0x11000, 0x10: 512, 0x14: id/8<<12 | id%8<<8 | 1<<21, 0x1c: vas, 0x80: engine,
		0x90: 1<<32 - 0x1000, 0x98: 0x1000, 0xa0: 2, 0xa8: 0x1000, 0xb0: 0x200, 0xb8: 2, 0xf4: 4}
}

// channel makes a channel that runs.
func (u *guest) channel(client uint32, id, engine uint64) {
	h := chanBase + uint32(id)
	require.Zero(u.t, u.alloc(client, dev, h, 0xc86f, channelParams(id, engine).bytes(368)))
	status, _ := u.control(client, h, 0xa06f0104, fields{0: engine}.bytes(4))
	require.Zero(u.t, status)
	status, _ = u.control(client, h, 0xa06f0103, []byte{1, 0})
	require.Zero(u.t, status)
}

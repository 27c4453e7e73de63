package gsp

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gh100"
)

const c1, c2 = 0xc1d00000, 0xc1d00001

// TestProbe: the calls of a driver from its probe to its unload are answered as it needs them, and the
// host is asked for what they mean.
func TestProbe(t *testing.T) {
	u := newGuest(t)
	require.True(t, u.push(Call{Function: 72, Payload: make([]byte, 928)}))
	require.True(t, u.push(Call{Function: 73, Payload: fields{0: 70000}.bytes(70000)}))
	u.boot()

	s := u.call(65, make([]byte, 1656)).Payload
	require.EqualValues(t, 2, le.Uint32(s[0x158:]))
	require.Equal(t, []uint64{0, 4<<30 - 1, 0, 4 << 30, testVRAM - 1}, []uint64{
		le.Uint64(s[0x160:]), le.Uint64(s[0x168:]), le.Uint64(s[0x170:]), le.Uint64(s[0x190:]), le.Uint64(s[0x198:])})
	require.Equal(t, []byte{1, 1, 0, 0, 0, 0}, append(s[0x17c:0x17f:0x17f], s[0x1ac:0x1af]...), "compressed, ISO and protected of both")
	require.NotZero(t, le.Uint64(s[0x1a0:]), "the second region is reserved")
	for _, at := range []int{0x600, 0x608, 0x668, 0x670} {
		v := le.Uint64(s[at:])
		require.True(t, v >= 4<<30 && v < testVRAM && v%4096 == 0, "%#x: %#x", at, v)
	}
	require.NotEqual(t, le.Uint64(s[0x600:]), le.Uint64(s[0x608:]))
	require.Greater(t, le.Uint64(s[0x670:])+0x100000, le.Uint64(s[0x668:])+0x220000, "the driver saves what is between")
	require.Equal(t, []uint32{internal, internalDev, internalSub}, []uint32{le.Uint32(s[0x640:]), le.Uint32(s[0x644:]), le.Uint32(s[0x648:])})

	require.EqualValues(t, 7, le.Uint32(u.asks(0x20800137, make([]byte, 4))))
	for gpc, mask := range []uint32{0x1ff, 0xff, 1} {
		require.Equal(t, mask, le.Uint32(u.asks(0x20800138, fields{0: uint64(gpc)}.bytes(8))[4:]))
	}
	v := u.asks(0x20800a5c, make([]byte, 4+128*16+14))
	require.EqualValues(t, 4, le.Uint32(v))
	require.Equal(t, fields{0: 50, 8: gh100.VectorGSP, 12: 0xffffffff}.bytes(16), v[4:20])
	for i, index := range []uint64{84, 15, 16} {
		require.Equal(t, fields{0: index, 8: 0xffffffff, 12: uint64(gh100.EngineVector(i))}.bytes(16), v[20+16*i:36+16*i])
	}
	require.Zero(t, u.call(70, fields{0: 1, 8: 0xffe00000_02, 16: 56}.bytes(24)).Result)
	require.Equal(t, "bar2 0xffe0000002", u.host.took())

	e := u.asks(0x20801112, make([]byte, 3212))
	require.EqualValues(t, 3, le.Uint32(e[4:]))
	for i, want := range [][2]uint32{{1, 0}, {9, 0}, {10, 1}} {
		data := e[12+100*i:]
		require.Equal(t, want, [2]uint32{le.Uint32(data[8:]), le.Uint32(data[12:])}, "engine and runlist")
		require.Equal(t, want[1] == 0, le.Uint32(data[44:]) == le.Uint32(e[12+44:]), "a runlist has its own registers")
	}
	require.EqualValues(t, 0x1000, le.Uint32(u.asks(0x20802a08, make([]byte, 4))))
	require.Zero(t, le.Uint32(u.asks(0x208001b0, fields{0: 7}.bytes(1284))))

	// The first context, on a channel that never runs.
	u.client(c1, false)
	status, _ := u.control(c1, vas, 0x90f10106, fields{8: 0x20000000, 0x10: 1 << 32, 0x18: 1<<32 + 0x1fffffff, 0x20: 4, 0x28: 0xfff00000, 0x38: 1}.bytes(0xb8))
	require.Zero(t, status)
	require.Zero(t, u.alloc(c1, dev, chanBase, 0xc86f, channelParams(0, 1).bytes(368)))
	for i, p := 0, u.asks(0x20800a32, make([]byte, 1664)); i < 26; i++ {
		require.NotZero(t, le.Uint32(p[8*i:]), "a buffer without a size")
	}
	require.NotContains(t, u.asks(0x20801206, make([]byte, 40)), make([]byte, 40))
	status, _ = u.control(c1, sub, 0x2080012b, fields{0: 1, 0xc: c1, 0x10: chanBase, 0x28: 9}.bytes(560))
	require.Zero(t, status)
	require.Zero(t, u.alloc(c1, chanBase, 0x97000000, 0xcb97, nil))
	for _, h := range []uint32{0x97000000, chanBase, vas, sub, dev, c1} {
		require.Zero(t, u.free(c1, h))
	}
	require.Equal(t, "space 1; directory 1 0xfff00000 1; drop 1", u.host.took())

	// The kernel's channels, one of each runlist.
	u.client(c1, true)
	status, _ = u.control(c1, dev, 0x801813, fields{0: 0xffd00000, 8: 2, 16: vas}.bytes(32))
	require.Zero(t, status)
	u.channel(c1, 1, 1)
	u.channel(c1, 2, 10)
	for i, class := range []uint32{0x902d, 0xa140, 0xcb97, 0xcbc0, 0xc8b5} {
		require.Zero(t, u.alloc(c1, chanBase+1, uint32(i), class, nil))
	}
	for range testBudget { // one handle, of objects that are freed or not
		require.Zero(t, u.alloc(c1, chanBase+2, 0xc8b50000, 0xc8b5, fields{0: 1, 4: 10}.bytes(8)))
	}
	require.Zero(t, u.free(c1, 0xc8b50000))
	require.Zero(t, u.free(c1, 0xc8b50000))
	require.Equal(t, "space 2; directory 2 0xffd00000 1; "+
		"open 1 in 2 on 0 ring 0x11000+512 userd 0x1000 inst 0xfffff000 admin false; schedule 1 true; "+
		"open 2 in 2 on 2 ring 0x11000+512 userd 0x1000 inst 0xfffff000 admin false; schedule 2 true", u.host.took())

	// A fault, and a line for the log.
	u.g.Failed(2, ErrorMMU, 0x123456789000, 5)
	u.g.LogError(1, ErrorPBDMA, strings.Repeat("long ", 100))
	u.g.Failed(3, ErrorMMU, 0, 0)
	require.Equal(t, "announce; announce", u.host.took(), "there is no channel 3")
	require.Zero(t, u.free(c1, chanBase+2))
	require.Equal(t, fields{0: 10, 4: 2, 0x10: 31, 0x1c: 0x123456789000, 0x24: 5}.bytes(48), u.events[0].Payload)
	require.EqualValues(t, 0x1004, u.events[0].Function)
	require.EqualValues(t, 0x1006, u.events[1].Function)
	require.Len(t, u.events[1].Payload, 272)
	require.Equal(t, strings.Repeat("long ", 51)+"\x00", string(u.events[1].Payload[12:268]))

	status, _ = u.control(c1, dev, 0x801814, fields{0: vas}.bytes(8))
	require.Zero(t, status)
	require.Zero(t, u.call(47, make([]byte, 8)).Result)
	require.Equal(t, "close 2; directory 2 0x0 0; close 1; drop 2; bar2 0x0; unload", u.host.took())
	require.NoError(t, u.g.Boot(paramsAt), "GSP boots again")
	require.Empty(t, u.log)
}

// TestSuspend: objects, BAR2 and the places in the queues survive a suspend, during which the host has
// nothing. Channels run after it, but for one that the host has no room for.
func TestSuspend(t *testing.T) {
	u := newGuest(t)
	u.boot()
	u.call(70, fields{0: 1, 8: 0x1002}.bytes(24))
	u.client(c1, true)
	status, _ := u.control(c1, dev, 0x801813, fields{0: 0xffd00000, 8: 2, 16: vas}.bytes(32))
	require.Zero(t, status)
	u.channel(c1, 1, 1)
	u.channel(c1, 3, 1)
	u.g.Failed(3, ErrorMMU, 0, 0)
	u.host.took()
	u.asks(0x20800ac3, []byte{1})
	status, _ = u.control(c1, chanBase+1, 0xa06f0103, []byte{1, 0})
	require.Zero(t, status)
	require.Zero(t, u.alloc(c1, dev, chanBase+2, 0xc86f, channelParams(2, 1).bytes(368)))
	list := make([]byte, 0x38+8*20000) // more than an element
	copy(list, fields{0: internal, 4: internalDev, 8: 0xcaf00003, 0xc: 0x81, 0x28: 20000}.bytes(0x38))
	require.Zero(t, u.call(4, list).Result)
	u.asks(0x20800ac2, fields{0: internal, 4: 0xcaf00003}.bytes(24))
	require.Zero(t, u.free(internal, 0xcaf00003))
	require.Zero(t, u.call(47, fields{0: 1, 4: 3}.bytes(8)).Result)
	require.Equal(t, "schedule 1 false; schedule 3 false; schedule 1 false; close 3; close 1; drop 1; bar2 0x0; unload", u.host.took())

	require.True(t, u.push(Call{Function: 72, Payload: make([]byte, 928)}))
	read := u.g.State().Queues.Read
	err := u.g.Kick()
	require.NoError(t, err)
	require.Equal(t, read, u.g.State().Queues.Read)
	u.g.Failed(1, ErrorMMU, 0, 0)
	require.Empty(t, u.host.took(), "GSP does not run")

	le.PutUint64(u.ram[descAt:], magicResume)
	le.PutUint64(u.ram[paramsAt+paramsArgs:], 0)
	u.ram[argsAt+argsResume] = 1
	u.ram[argsAt] ^= 1
	require.ErrorContains(t, u.g.Boot(paramsAt), "queues at another place")
	u.ram[argsAt] ^= 1
	u.boot()
	const open = "open 1 in 2 on 0 ring 0x11000+512 userd 0x1000 inst 0xfffff000 admin false"
	require.Equal(t, "bar2 0x1002; space 2; directory 2 0xffd00000 1; "+open, u.host.took(), "but not one that was never bound, nor one that failed")
	u.asks(0x20800ac3, []byte{0})
	require.EqualValues(t, 0x1002, u.g.State().BAR2)
	require.Zero(t, u.alloc(c1, chanBase+1, 7, 0xcb97, nil))
	require.Equal(t, "schedule 1 true", u.host.took())
	require.ErrorContains(t, u.g.Boot(paramsAt), "was not suspended")

	require.Zero(t, u.call(47, fields{0: 1, 4: 3}.bytes(8)).Result)
	u.host.took()
	u.host.refuse = true
	require.NoError(t, u.g.Boot(paramsAt))
	require.Equal(t, []uint32{0x1004, 0x1001}, []uint32{u.message().Function, u.message().Function})
	require.Equal(t, "bar2 0x1002; space 3; directory 3 0xffd00000 1; announce", u.host.took())
	require.Zero(t, u.free(c1, c1))
	require.Equal(t, "drop 3", u.host.took())
}

// TestHeld: while the host is not done with a call, its reply is held, and no other call is taken.
func TestHeld(t *testing.T) {
	u := newGuest(t)
	u.boot()
	u.client(c1, true)
	u.channel(c1, 1, 1)
	u.host.took()
	u.host.slow = true
	require.True(t, u.push(Call{Function: 10, Payload: fields{0: c1, 8: chanBase + 1}.bytes(0x10)}))
	require.True(t, u.push(Call{Function: 47, Payload: fields{0: 1, 4: 3}.bytes(8)}))
	for i, asks := range []string{"close 1", "drop 1", "unload"} {
		u.host.busy = false
		for _, asks := range []string{asks, ""} {
			err := u.g.Kick()
			require.NoError(t, err)
			require.Equal(t, asks, u.host.took())
			if asks != "" && i > 0 {
				require.Equal(t, []uint32{10, 47}[i-1], u.message().Function)
			}
			require.Nil(t, u.pull(t), "the reply is held")
			st := u.g.State()
			u.restore(&st)
		}
	}
}

// TestRefused: what a driver may not have is answered with a status, and asks the host for nothing.
func TestRefused(t *testing.T) {
	u := newGuest(t)
	u.boot()
	u.client(c1, true)
	u.client(c2, true)
	u.channel(c1, 1, 1)
	u.channel(c1, 2, 10)
	require.Zero(t, u.alloc(c1, c1, dev+1, 0x80, nil))
	u.host.took()
	ch := func(at int, v uint64) []byte {
		f := channelParams(3, 1)
		f[at] = v
		return f.bytes(368)
	}
	for _, c := range []struct {
		name                          string
		client, parent, handle, class uint32
		params                        []byte
		status                        uint32
	}{
		{"a handle twice", c1, dev, sub, 0x2080, nil, 0x34},
		{"a client twice", c1, c1, c1, 0, nil, 0x34},
		{"GSP's client", internal, internal, internal, 0, nil, 0x34},
		{"no client", 5, dev, 6, 0x2080, nil, 0x23},
		{"no parent", c1, 99, 6, 0x2080, nil, 0x36},
		{"its own parent", c1, 6, 6, 0x2080, nil, 0x36},
		{"a parent of another class", c1, sub, 6, 0x90f1, make([]byte, 0x30), 0x36},
		{"a client below a client", c1, c1, 6, 0, nil, 0x33},
		{"a device that is the client", c1, c1, c1, 0x80, nil, 0x33},
		{"no class", c1, dev, 6, 0xb197, nil, 0x22},
		{"short parameters", c1, dev, 6, 0xc86f, make([]byte, 367), 0x3a},
		{"3D on a copy engine", c1, chanBase + 2, 6, 0xcb97, nil, 0x22},
		{"no space", c1, dev, 6, 0xc86f, ch(0x1c, 7), 0x33},
		{"a space that is a device", c1, dev, 6, 0xc86f, ch(0x1c, sub), 0x33},
		{"a space of another device", c1, dev + 1, 6, 0xc86f, channelParams(3, 1).bytes(368), 0x33},
		{"a channel's number twice", c1, dev, 6, 0xc86f, channelParams(1, 1).bytes(368), 0x63},
		{"a channel beyond", c1, dev, 6, 0xc86f, ch(0x14, 256<<12), 0x1f},
		{"no engine", c1, dev, 6, 0xc86f, ch(0x80, 11), 0x1f},
		{"no entries", c1, dev, 6, 0xc86f, ch(0x10, 0), 0x1f},
		{"a long ring", c1, dev, 6, 0xc86f, ch(0x10, 1<<24+1), 0x1f},
		{"a ring beyond", c1, dev, 6, 0xc86f, ch(8, 1<<57-8), 0x1f},
		{"a ring that is odd", c1, dev, 6, 0xc86f, ch(8, 4), 0x1f},
		{"USERD beyond", c1, dev, 6, 0xc86f, ch(0xa8, testVRAM), 0x1f},
		{"USERD not aligned", c1, dev, 6, 0xc86f, ch(0xa8, 0x1100), 0x1f},
		{"USERD in RAM", c1, dev, 6, 0xc86f, ch(0xb8, 1), 0x1f},
		{"an instance beyond", c1, dev, 6, 0xc86f, ch(0x90, 1<<63), 0x1f},
		{"an instance in RAM", c1, dev, 6, 0xc86f, ch(0xa0, 1), 0x1f},
	} {
		require.Equal(t, c.status, u.alloc(c.client, c.parent, c.handle, c.class, c.params), c.name)
	}
	dir := func(at int, v uint64) []byte {
		f := fields{0: 0xff000000, 8: 2, 16: vas}
		f[at] = v
		return f.bytes(32)
	}
	require.Zero(t, u.alloc(c2, dev, vas+1, 0x90f1, make([]byte, 0x30)), "a space of GSP's")
	u.host.took()
	for _, c := range []struct {
		name                   string
		client, object, number uint32
		params                 []byte
		status                 uint32
	}{
		{"no object", c1, 9, 0x801813, dir(0, 0), 0x33},
		{"another's object", c2, chanBase + 1, 0xa06f0103, []byte{0, 0}, 0x33},
		{"an object of another class", c1, sub, 0x801813, dir(0, 0), 0x33},
		{"short", c1, dev, 0x801813, make([]byte, 31), 0x3a},
		{"another engine", c1, chanBase + 1, 0xa06f0104, fields{0: 9}.bytes(4), 0x1f},
		{"no space", c1, dev, 0x801813, dir(16, dev), 0x33},
		{"a space of GSP's", c2, dev, 0x801813, dir(16, vas+1), 0x33},
		{"a directory beyond", c1, dev, 0x801813, dir(0, testVRAM), 0x1f},
		{"a directory not aligned", c1, dev, 0x801813, dir(0, 0x80), 0x1f},
		{"a directory beyond the bus", c1, dev, 0x801813, fields{0: 1 << 52, 12: 1, 16: vas}.bytes(32), 0x1f},
		{"a directory nowhere", c1, dev, 0x801813, dir(12, 3), 0x1f},
		{"directories of an external space", c1, vas, 0x90f10106, fields{0x20: 4, 0x28: 0x1000, 0x38: 1}.bytes(0xb8), 0x1f},
		{"no levels", c2, vas + 1, 0x90f10106, fields{0x28: 0x1000, 0x38: 1}.bytes(0xb8), 0x1f},
		{"levels in RAM", c2, vas + 1, 0x90f10106, fields{0x20: 4, 0x28: 0x1000, 0x38: 2}.bytes(0xb8), 0x1f},
		{"no cluster", internal, internalSub, 0x20800138, fields{0: 3}.bytes(8), 0x1f},
		{"no control", internal, internalSub, 0x20800abc, nil, 0x56},
		{"no control again", internal, internalSub, 0x20800abc, nil, 0x56},
	} {
		status, _ := u.control(c.client, c.object, c.number, c.params)
		require.Equal(t, c.status, status, c.name)
	}
	require.EqualValues(t, 0x63, u.free(c1, vas), "a space in use")
	require.EqualValues(t, 0x33, u.free(99, 99))
	require.EqualValues(t, 0x1f, u.call(70, fields{0: 0, 8: 1}.bytes(24)).Result, "BAR1's root is the driver's")
	require.EqualValues(t, 0x3a, u.call(76, make([]byte, 8)).Result)
	require.EqualValues(t, 0x3a, u.call(76, fields{8: 0x20800137, 0x10: 100}.bytes(0x18+50)).Payload[0xc])
	require.EqualValues(t, 0x56, u.call(99, make([]byte, 8)).Result)
	require.EqualValues(t, 0x22, u.call(4, fields{0: internal, 4: internalDev, 8: 9, 0xc: 0x82}.bytes(0x38)).Result)
	require.Empty(t, u.host.took())

	require.Zero(t, u.g.UnsupportedOthers)
	require.Equal(t, []Unsupported{{"class", 0xb197, 1}, {"control", 0x20800abc, 2}, {"function", 99, 1}}, u.g.Unsupported)
	require.Len(t, u.log, 3, "each is logged once")
	for i := range uint32(2 * maxUnsupported) {
		u.control(internal, internalSub, 1<<24+i, nil)
	}
	require.Len(t, u.g.Unsupported, maxUnsupported)
	require.EqualValues(t, maxUnsupported+3, u.g.UnsupportedOthers)

	u.host.refuse = true
	require.Zero(t, u.alloc(c1, dev, 6, 0xc86f, channelParams(3, 9).bytes(368)))
	status, _ := u.control(c1, 6, 0xa06f0103, []byte{1, 0})
	require.EqualValues(t, 0x51, status)
	_, there := u.g.ChannelOf(3)
	require.False(t, there, "the host has no such channel")
	require.Zero(t, u.free(c1, 6))
	n := uint32(0)
	for u.alloc(c1, dev, 1000+n, 0x2080, nil) == 0 {
		n++
	}
	require.EqualValues(t, 0x51, u.alloc(c1, dev, 1000+n, 0x2080, nil))
	require.Len(t, u.g.State().Objects, testBudget+3)
	require.Zero(t, u.free(c1, c1))
	require.Zero(t, u.alloc(c2, dev, 1000, 0x2080, nil))
}

// TestState: no field of the state is forgotten, and a GSP that is made from it goes on.
func TestState(t *testing.T) {
	u := newGuest(t)
	u.boot()
	u.call(70, fields{0: 1, 8: 0x1002}.bytes(24))
	u.client(c1, true)
	status, _ := u.control(c1, dev, 0x801813, fields{0: 0xffd00000, 8: 2, 16: vas}.bytes(32))
	require.Zero(t, status)
	admin := channelParams(3, 10)
	admin[0xf4] = 5
	require.Zero(t, u.alloc(c1, dev, 3, 0xc86f, admin.bytes(368)))
	u.channel(c1, 1, 10)
	u.asks(0x20800ac3, []byte{1})
	u.g.Failed(1, ErrorMMU, 0, 0)
	for i := range uint32(maxUnsupported + 1) {
		u.control(internal, internalSub, 1<<24+i, nil)
	}
	for u.g.calls.Event(0x1004, make([]byte, 48)) {
	}
	u.g.calls.Pending = u.g.calls.Events[:1]
	u.g.calls.Begun = &Call{Function: 4, Sequence: 5, Result: 6, Payload: []byte{7}}
	u.g.Suspended, u.g.Arguments.Resume = true, true
	u.g.Held = u.g.calls.Begun

	before := u.g.State()
	set := map[string]bool{}
	var visit func(v reflect.Value, path string)
	visit = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				require.True(t, v.Type().Field(i).IsExported(), path)
				visit(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case reflect.Pointer:
			visit(v.Elem(), path)
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i), path+"[]")
			}
		}
		set[path] = set[path] || v.IsValid() && !v.IsZero()
	}
	visit(reflect.ValueOf(before), "State")
	for path, is := range set {
		require.True(t, is, "the test leaves %s zero", path)
	}
	require.Equal(t, reflect.TypeFor[GSP]().NumField(), 11, "a new field belongs to the state, or can be made from it")

	text, err := json.Marshal(before)
	require.NoError(t, err)
	var after State
	require.NoError(t, json.Unmarshal(text, &after))
	u.restore(&after)
	require.Equal(t, before, u.g.State())

	u.g.Suspended, u.g.calls.Begun, u.g.calls.Pending, u.g.calls.Events, u.g.Held = false, nil, nil, nil, nil
	for u.pull(t) != nil {
	}
	u.host.took()
	require.Zero(t, u.free(c1, dev))
	require.Equal(t, "close 1; drop 1", u.host.took())

	for _, spoil := range []func(*State){
		func(s *State) { s.Version++ },
		func(s *State) { s.Release = "535.113.01" },
		func(s *State) { s.Objects = s.Objects[1:] },
		func(s *State) { s.Objects[0].Class = 0xb197 },
		func(s *State) { s.Objects[7].Channel.ID = 2048 },
		func(s *State) { s.Objects[7].Channel.Engine = 3 },
		func(s *State) { s.Objects[7].Channel.ID = s.Objects[8].Channel.ID },
		func(s *State) { s.Queues.Read = 63 },
		func(s *State) { s.Queues.Pages = s.Queues.Pages[:128] },
		func(s *State) { s.Calls.Pending[0] = nil },
		func(s *State) { s.Calls.Events[0] = nil },
	} {
		bad := clone(before)
		spoil(&bad)
		_, err := New(u.g.cfg, u.host, u.driver, &bad)
		require.ErrorContains(t, err, "gsp: state")
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []Config{
		{VRAM: 8<<30 + Reserved, TPCs: []int{1, 32}, Objects: 1}, {VRAM: 512<<20 + Reserved, TPCs: []int{1}, Objects: 1},
		{VRAM: 4 << 30, TPCs: []int{1}, Objects: 1}, {VRAM: Reserved, TPCs: []int{1}, Objects: 1}, {VRAM: testVRAM, Objects: 1},
		{VRAM: testVRAM, TPCs: []int{8, 33}, Objects: 1}, {VRAM: testVRAM, TPCs: []int{1}},
	} {
		_, err := New(c, nil, nil, nil)
		require.Equal(t, c.VRAM == 8<<30+Reserved, err == nil, "%v", c)
	}
}

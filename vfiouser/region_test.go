package vfiouser_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// TestReplyCarriesNoOldBytes: a device that leaves its buffer alone shows nothing of the
// replies before.
func TestReplyCarriesNoOldBytes(t *testing.T) {
	d := newDevice(t)
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	secret := make([]byte, 4096-64)
	for i := range secret {
		secret[i] = 0xaa
	}
	require.NoError(t, c.Write(0, 0, secret))
	require.NoError(t, c.Read(0, 0, secret))
	d.locked(func() { d.onRead = func(int, uint64, []byte) error { return nil } })
	got := make([]byte, len(secret))
	require.NoError(t, c.Read(0, 0, got))
	require.Equal(t, make([]byte, len(secret)), got)
}

// TestWriteMulti: the writes of a message are independent of each other; the reply counts those that
// were done.
func TestWriteMulti(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	n, err := c.WriteMulti([]client.MultiWrite{
		{Offset: 0, Data: []byte{1, 2, 3, 4}},
		{Region: 9, Offset: 0, Data: []byte{9}},
		{Region: 6, Offset: 0, Data: []byte{9}}, // read only
		{Offset: 8, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{Region: 7, Offset: 4, Data: []byte{6}},
	})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	r.dev.locked(func() {
		require.Equal(t, []byte{1, 2, 3, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, r.dev.mem[0][:16])
		require.EqualValues(t, 6, r.dev.mem[7][4])
		require.Zero(t, r.dev.mem[6][0])
	})
	for _, count := range []uint32{9, ^uint32(0)} {
		entry := append(wire.Append(le.AppendUint64(nil, 1), wire.RegionAccess{Count: count}), make([]byte, 8)...)
		_, err = c.Call(wire.RegionWriteMulti, entry)
		require.Equal(t, syscall.EINVAL, err, "an entry of %d bytes", count)
	}
	_, err = newRig(t, newDevice(t), vfiouser.Options{NoWriteMulti: true}).dial(nil).WriteMulti(nil)
	require.Equal(t, syscall.EINVAL, err, "not negotiated")
}

func TestRegionInfoWithoutDescriptors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(&client.Options{Capabilities: `{"capabilities":{"max_msg_fds":0}}`})
	m, err := c.Call(wire.DeviceGetRegionInfo, wire.Append(nil, wire.RegionInfo{Argsz: 4096, Index: 1}))
	require.NoError(t, err)
	require.Equal(t, wire.RegionInfo{Argsz: 32, Index: 1, Flags: 3, Size: 0x10000}, wire.Parse[wire.RegionInfo](m.Payload))
}

// TestNoAllocations counts the whole process: client's system calls, server's thread, device.
func TestNoAllocations(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	fd := negotiated(t)
	reply := make([]byte, 1<<16)
	posted := append(writeMessage(0x24, wire.NoReply), readMessage(0)...)
	var batch []byte
	for i := range 100 {
		batch = append(append(batch, writeMessage(uint64(i)*4, 0)...), readMessage(0)...)
	}
	multi := le.AppendUint64(nil, 2)
	for range 2 {
		multi = le.AppendUint64(wire.Append(multi, wire.RegionAccess{Count: 4}), 5)
	}
	for name, msg := range map[string][]byte{
		"read":        readMessage(0x20),
		"write":       writeMessage(0x20, 0),
		"posted":      posted,
		"multi":       message(wire.RegionWriteMulti, 0, multi),
		"batch":       batch,
		"bad region":  message(wire.RegionRead, 0, wire.Append(nil, wire.RegionAccess{Region: 9, Count: 4})),
		"bad command": message(99, 0, nil),
		"device info": message(wire.DeviceGetInfo, 0, wire.Append(nil, wire.DeviceInfo{Argsz: 16})),
		"4 KiB":       message(wire.RegionRead, 0, wire.Append(nil, wire.RegionAccess{Region: 2, Count: 4096})),
	} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, testing.AllocsPerRun(200, func() {
				_, _ = unix.Write(fd, msg)
				want := 1
				if name == "batch" {
					want = 100 * (32 + 36)
				}
				for got := 0; got < want; {
					n, err := unix.Read(fd, reply)
					if err != nil || n == 0 {
						panic("no reply")
					}
					got += n
				}
			}))
		})
	}
}

func TestNoAllocationsInHost(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<16)
	for i := range uint64(4) {
		require.NoError(t, c.Map(i<<16, ram, 0, 1<<16, client.ReadWrite))
	}
	attach(t, c, irqMSI, 0, 1)
	h := r.dev.Host()
	m := h.Memory()
	i, p := uint64(0), make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		i++
		if m.Copy((i&3)<<16, p, true) != nil || m.Copy(1<<40, p, false) == nil || m.Copy(0xfff0, p, false) != nil {
			panic("copy")
		}
		h.Trigger(irqMSI, 0)
		h.Trigger(irqMSI, 3)
	}))
}

type ioDevice struct {
	*memDevice
	parts map[int][]vfiouser.IOFD
}

func (d ioDevice) RegionIOFDs(index int) []vfiouser.IOFD { return d.parts[index] }

func eventFile(t testing.TB) *os.File {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "ioeventfd")
	t.Cleanup(func() { f.Close() })
	return f
}

// TestRegionIOFDs: each descriptor travels once. The conformance suite has the entries without shadow.
func TestRegionIOFDs(t *testing.T) {
	e1, shadow := eventFile(t), memfd(t, 4096)
	many := make([]vfiouser.IOFD, 20)
	for i := range many {
		many[i] = vfiouser.IOFD{Offset: uint64(i) * 8, Size: 8, File: eventFile(t)}
	}
	d := ioDevice{newDevice(t), map[int][]vfiouser.IOFD{
		1: {
			{Offset: 0x40, Size: 4, File: e1, Type: vfiouser.IOEventFDShadow, Shadow: shadow, ShadowOffset: 0x80},
			{Offset: 0x44, Size: 4, File: e1, DataMatch: 7},
		},
		2: many,
		6: {{Size: 4}},
	}}
	c := newRig(t, d, vfiouser.Options{}).dial(nil)
	for q, want := range map[wire.RegionIO]error{
		{Argsz: 1000, Index: 3}: syscall.EINVAL, // absent region
		{Argsz: 4000, Index: 2}: syscall.E2BIG,  // more descriptors than the client takes
		{Argsz: 4000, Index: 6}: syscall.EBADF,  // a part without a descriptor
		{Argsz: 4000, Index: 7}: nil,
	} {
		m, err := c.Call(wire.DeviceGetRegionIO, wire.Append(nil, q))
		require.Equal(t, want, err)
		require.True(t, want != nil || le.Uint32(m.Payload) == wire.RegionIOSize, "none")
	}
	io, err := c.RegionIOFDs(1)
	require.NoError(t, err)
	require.EqualValues(t, 16+2*48, io.Argsz, "the form that has shadow fields")
	require.Len(t, io.FDs, 2)
	require.Equal(t, []wire.SubRegion{
		{Offset: 0x40, Size: 4, FDIndex: 0, Type: 2, ShadowFD: 1, ShadowOffset: 0x80},
		{Offset: 0x44, Size: 4, FDIndex: 0, DataMatch: 7},
	}, io.Parts)
	other := client.EventFD{FD: io.FDs[0]}
	require.NoError(t, other.Signal())
	n, err := e1.Read(make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, 8, n)
	unix.Close(io.FDs[0])
	unix.Close(io.FDs[1])
}

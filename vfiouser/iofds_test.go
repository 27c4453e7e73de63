package vfiouser_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

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

func TestRegionIOFDs(t *testing.T) {
	e1, e2, shadow := eventFile(t), eventFile(t), memfd(t, 4096)
	many := make([]vfiouser.IOFD, 20)
	for i := range many {
		many[i] = vfiouser.IOFD{Offset: uint64(i) * 8, Size: 8, File: eventFile(t)}
	}
	d := ioDevice{newDevice(t), map[int][]vfiouser.IOFD{
		0: {
			{Offset: 0x10, Size: 4, File: e1, Flags: 1, DataMatch: 0x1122334455667788},
			{Offset: 0x20, Size: 8, File: e2},
			{Offset: 0x30, Size: 2, File: e1, Type: vfiouser.IORegionFD, DataMatch: 9},
		},
		1: {
			{Offset: 0x40, Size: 4, File: e1, Type: vfiouser.IOEventFDShadow, Shadow: shadow, ShadowOffset: 0x80},
			{Offset: 0x44, Size: 4, File: e1, DataMatch: 7},
		},
		2: many,
		6: {{Size: 4}},
	}}
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	ask := func(q wire.RegionIO) (client.Message, error) {
		return c.Call(wire.DeviceGetRegionIO, wire.Append(nil, q))
	}
	_, err := ask(wire.RegionIO{Argsz: 1<<20 + 1})
	require.Equal(t, syscall.EINVAL, err)
	_, err = ask(wire.RegionIO{Argsz: 1000, Index: 3})
	require.Equal(t, syscall.EINVAL, err, "absent region")
	_, err = ask(wire.RegionIO{Argsz: 4000, Index: 2})
	require.Equal(t, syscall.E2BIG, err, "more descriptors than the client takes")
	_, err = ask(wire.RegionIO{Argsz: 4000, Index: 6})
	require.Equal(t, syscall.EBADF, err, "a part without a descriptor")

	m, err := ask(wire.RegionIO{Argsz: 4000, Index: 7})
	require.NoError(t, err)
	require.Equal(t, wire.Append(nil, wire.RegionIO{Argsz: 16, Index: 7}), m.Payload, "none")

	for _, argsz := range []uint32{16, 100, 16 + 3*40 - 1} {
		m, err = ask(wire.RegionIO{Argsz: argsz})
		require.NoError(t, err)
		require.Equal(t, wire.Append(nil, wire.RegionIO{Argsz: 16 + 3*40, Count: 3}), m.Payload, "what is needed")
		require.Empty(t, m.FDs)
	}
	io, err := c.RegionIOFDs(0)
	require.NoError(t, err)
	require.Equal(t, wire.RegionIO{Argsz: 16 + 3*40, Count: 3}, io.RegionIO)
	require.Len(t, io.FDs, 2, "each descriptor once")
	require.Equal(t, []wire.SubRegion{
		{Offset: 0x10, Size: 4, FDIndex: 0, Flags: 1, DataMatch: 0x1122334455667788},
		{Offset: 0x20, Size: 8, FDIndex: 1},
		{Offset: 0x30, Size: 2, FDIndex: 0, Type: 1, DataMatch: 9},
	}, io.Parts)
	other := client.EventFD{FD: io.FDs[1]}
	require.NoError(t, other.Signal())
	var b [8]byte
	n, err := e2.Read(b[:])
	require.NoError(t, err)
	require.Equal(t, 8, n)
	unix.Close(io.FDs[0])
	unix.Close(io.FDs[1])

	io, err = c.RegionIOFDs(1)
	require.NoError(t, err)
	require.EqualValues(t, 16+2*48, io.Argsz, "the form that has shadow fields")
	require.Len(t, io.FDs, 2)
	require.Equal(t, []wire.SubRegion{
		{Offset: 0x40, Size: 4, FDIndex: 0, Type: 2, ShadowFD: 1, ShadowOffset: 0x80},
		{Offset: 0x44, Size: 4, FDIndex: 0, DataMatch: 7},
	}, io.Parts)
	unix.Close(io.FDs[0])
	unix.Close(io.FDs[1])
	c.Close()

	r = newRig(t, newDevice(t), vfiouser.Options{})
	io, err = r.dial(nil).RegionIOFDs(0)
	require.NoError(t, err)
	require.Zero(t, io.Count, "a device that offers none")
}

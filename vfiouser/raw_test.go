package vfiouser_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var le = binary.LittleEndian

// pair returns two ends of a stream socket, in blocking mode.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return p[0], p[1]
}

func unixConn(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c.(*net.UnixConn)
}

// served returns the client's end of a connection that a server of dev serves.
func served(t testing.TB, dev vfiouser.Device, o vfiouser.Options) (fd int, srv *vfiouser.Server) {
	t.Helper()
	srv, err := vfiouser.NewServer(dev, o)
	require.NoError(t, err)
	a, b := pair(t)
	nc := unixConn(t, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeConn(context.Background(), nc)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return a, srv
}

// idleDevice answers without doing anything, so that only the protocol can allocate.
type idleDevice struct{ memDevice }

func (d *idleDevice) ReadRegion(int, uint64, []byte) error  { return nil }
func (d *idleDevice) WriteRegion(int, uint64, []byte) error { return nil }

func newIdleDevice(t testing.TB) vfiouser.Device {
	d := &idleDevice{}
	d.regions = newDevice(t).regions
	d.irqs = newDevice(t).irqs
	return d
}

func message(cmd wire.Command, flags uint32, payload []byte) []byte {
	return wire.Message(wire.Header{ID: 7, Command: cmd, Flags: flags}, payload)
}

func readMessage(off uint64) []byte {
	return message(wire.RegionRead, 0, wire.Append(nil, wire.RegionAccess{Offset: off, Count: 4}))
}

func writeMessage(off uint64, flags uint32) []byte {
	return message(wire.RegionWrite, flags, append(wire.Append(nil, wire.RegionAccess{Offset: off, Count: 4}), 1, 2, 3, 4))
}

// negotiated serves an idle device and negotiates the version.
func negotiated(b testing.TB, o vfiouser.Options) (int, *vfiouser.Server) {
	fd, srv := served(b, newIdleDevice(b), o)
	b.Cleanup(func() { unix.Close(fd) })
	_, err := unix.Write(fd, message(wire.Version, 0, []byte("\x00\x00\x00\x00"+`{"capabilities":{"write_multiple":true}}`+"\x00")))
	require.NoError(b, err)
	_, err = unix.Read(fd, make([]byte, 256))
	require.NoError(b, err)
	return fd, srv
}

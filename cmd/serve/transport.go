package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Make makes a transport of a device.
type Make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error)

// Names of the transports.
const (
	TransportNative  = "native"
	TransportLibrary = "libvfio-user"
)

// Native makes the server of package vfiouser.
func Native(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
	return vfiouser.NewServer(d, o)
}

// TransportNamed returns how a transport is made, and what it lacks that the native
// one has. It fails for a transport that is not built into this program.
func TransportNamed(name string) (Make, []string, error) {
	switch {
	case name != TransportLibrary:
		return Native, nil, nil
	case !libvfiouser.Built:
		return nil, nil, libvfiouser.ErrNotBuilt
	}
	return libvfiouser.New, libvfiouser.Lacks(), nil
}

// Listen serves the clients of l, and closes it. A transport that makes its socket
// itself makes it at l's path.
func Listen(ctx context.Context, t vfiouser.Transport, l *net.UnixListener) error {
	if s, ok := t.(*vfiouser.Server); ok {
		return s.Serve(ctx, l)
	}
	path := l.Addr().String()
	vfiouser.CloseListener(l)
	return t.ListenAndServe(ctx, path)
}

// ErrNoInherited is ServeConn's error for a transport that makes its sockets itself.
var ErrNoInherited = errors.New("the transport makes its socket itself and cannot use an inherited one")

// ServeConn serves the one client of a connection.
func ServeConn(ctx context.Context, t vfiouser.Transport, c *net.UnixConn) error {
	if s, ok := t.(*vfiouser.Server); ok {
		return s.ServeConn(ctx, c)
	}
	vfiouser.CloseConn(c)
	return ErrNoInherited
}

// maxSocketPath is the longest path that fits into a sockaddr_un with its NUL.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// SocketPath makes the path of a socket absolute, and checks that it is usable.
func SocketPath(path, where string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return abs, err
	}
	wrong := func(reason string) (string, error) {
		return abs, &config.Error{Where: where, Value: abs, Reason: reason}
	}
	if len(abs) > maxSocketPath {
		return wrong(fmt.Sprintf("%d bytes long; the kernel takes socket paths of up to %d", len(abs), maxSocketPath))
	}
	switch dir, err := os.Stat(filepath.Dir(abs)); {
	case errors.Is(err, fs.ErrNotExist):
		return wrong(fmt.Sprintf("folder %s does not exist; make it or choose another path", filepath.Dir(abs)))
	case err == nil && !dir.IsDir():
		return wrong(filepath.Dir(abs) + " is not a folder; choose another path")
	}
	if there, err := os.Lstat(abs); err == nil && there.Mode()&fs.ModeSocket == 0 {
		return wrong("a file that is not a socket is there; remove it or choose another path")
	}
	return abs, nil
}

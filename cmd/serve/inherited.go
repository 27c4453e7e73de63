package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Inherited is a socket that the parent process opened: one that listens, or the connection of
// one client.
type Inherited struct {
	listener *net.UnixListener // nil of a connection
	conn     *net.UnixConn
}

// Inherit takes over a descriptor.
func Inherit(fd int) (*Inherited, error) {
	bad := func(reason string) error {
		return &config.Error{Where: "--fd", Value: fmt.Sprint(fd), Reason: reason}
	}
	if fd < 0 {
		return nil, bad("not a descriptor; give the number of an open one")
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, bad(fmt.Sprintf("%v; give a UNIX socket that is open in this process", err))
	}
	f := os.NewFile(uintptr(fd), "fd")
	defer f.Close()
	var socket io.Closer
	if listening != 0 {
		socket, err = net.FileListener(f)
	} else {
		socket, err = net.FileConn(f)
	}
	if err != nil {
		return nil, bad(err.Error())
	}
	switch u := socket.(type) {
	case *net.UnixListener:
		return &Inherited{listener: u}, nil
	case *net.UnixConn:
		return &Inherited{conn: u}, nil
	}
	socket.Close()
	return nil, bad("not a UNIX socket")
}

// path is where a listening socket is, absolute; "" of a connection.
func (i *Inherited) path() (string, error) {
	if i.listener == nil {
		return "", nil
	}
	return filepath.Abs(i.listener.Addr().String())
}

// serve serves the clients of the socket, and closes it.
func (i *Inherited) serve(ctx context.Context, s *vfiouser.Server) error {
	if i.conn != nil {
		return s.ServeConn(ctx, i.conn)
	}
	return s.Serve(ctx, i.listener)
}

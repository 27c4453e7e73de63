package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// socket is where clients connect, or the connection of one client.
type socket struct {
	path     string // absolute; "" of a connection
	listener *net.UnixListener
	conn     *net.UnixConn
}

func (c *serveCmd) listen(path string) (*socket, error) {
	if c.FD != noFD {
		return inherited(c.FD)
	}
	listener, err := vfiouser.Listen(path)
	if err != nil {
		return nil, err
	}
	return &socket{path: path, listener: listener}, nil
}

// inherited takes over a descriptor that the parent process opened.
func inherited(fd int) (*socket, error) {
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
	if listening != 0 {
		l, err := net.FileListener(f)
		if err != nil {
			return nil, bad(err.Error())
		}
		if u, ok := l.(*net.UnixListener); ok {
			path, err := filepath.Abs(u.Addr().String())
			return &socket{path: path, listener: u}, err
		}
		l.Close()
		return nil, bad("a listening socket, but not a UNIX one")
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, bad(err.Error())
	}
	if u, ok := conn.(*net.UnixConn); ok {
		return &socket{conn: u}, nil
	}
	conn.Close()
	return nil, bad("a connected socket, but not a UNIX one")
}

func (e *socket) serve(ctx context.Context, s vfiouser.Transport) error {
	if e.conn != nil {
		return serve.ServeConn(ctx, s, e.conn)
	}
	return serve.Listen(ctx, s, e.listener)
}

// close closes a socket that serve does not close.
func (e *socket) close() {
	if e.listener != nil {
		vfiouser.CloseListener(e.listener)
	}
	if e.conn != nil {
		vfiouser.CloseConn(e.conn)
	}
}

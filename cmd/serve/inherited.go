package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// Inherited is a socket that the parent process opened: one that listens, or the connection of
// one client.
type Inherited struct {
	listening *os.File // nil of a connection. It stays open: a GPU that is removed may be added again
	conn      *net.UnixConn
	path      string // of a listening socket
}

// Sockets are inherited sockets by their names: config.ControlSocket, config.WholeSocket, and
// config.GPUSocket with the name of a GPU.
type Sockets map[string]*Inherited

// firstFD is the first descriptor that a parent passes by LISTEN_FDS.
const firstFD = 3

// InheritNamed takes over the listening sockets that systemd, or another parent, passes as sd_listen_fds(3)
// describes. It removes the variables, which are for this process alone.
func InheritNamed() (Sockets, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	const where = "LISTEN_FDNAMES"
	if n, err := strconv.Atoi(count); err != nil || n != len(names) {
		return nil, &config.Error{Where: where, Value: strings.Join(names, ":"), Reason: fmt.Sprintf("has not the names of LISTEN_FDS=%s sockets; name each, in the unit of a socket with FileDescriptorName", count)}
	}
	out := make(Sockets)
	var errs []error
	for i, name := range names {
		s, err := inherit(firstFD+i, where, name)
		switch {
		case err != nil:
		case s.listening == nil || !filepath.IsAbs(s.path):
			err = &config.Error{Where: where, Value: name, Reason: "not a socket that listens at an absolute path, as ListenStream=/run/umbra/a.sock makes it"}
		case out[name] != nil:
			err = &config.Error{Where: where, Value: name, Reason: "is there twice; give each socket a name of its own"}
		}
		out[name], errs = s, append(errs, err)
	}
	return out, errors.Join(errs...)
}

// Paths are the paths of the sockets by name.
func (s Sockets) Paths() map[string]string {
	out := make(map[string]string)
	for name, i := range s {
		out[name] = i.path
	}
	return out
}

// Keep lets the program that this process executes inherit the sockets in their places.
func (s Sockets) Keep() error {
	for _, i := range s {
		if _, err := unix.FcntlInt(i.listening.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return nil
}

// Inherit takes over a descriptor.
func Inherit(fd int) (*Inherited, error) { return inherit(fd, "--fd", fmt.Sprint(fd)) }

func inherit(fd int, where, value string) (*Inherited, error) {
	bad := func(reason string) error {
		return &config.Error{Where: where, Value: value, Reason: reason}
	}
	if fd < 0 {
		return nil, bad("not a descriptor; give the number of an open one")
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, bad(fmt.Sprintf("%v; give a UNIX socket that is open in this process", err))
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "fd")
	var socket io.Closer
	if listening != 0 {
		socket, err = net.FileListener(f)
	} else {
		socket, err = net.FileConn(f)
	}
	if err != nil {
		return nil, errors.Join(bad(err.Error()), f.Close())
	}
	switch u := socket.(type) {
	case *net.UnixListener:
		return &Inherited{listening: f, path: u.Addr().String()}, u.Close()
	case *net.UnixConn:
		return &Inherited{conn: u}, f.Close()
	}
	return nil, errors.Join(bad("not a UNIX socket"), socket.Close(), f.Close())
}

// absolute is where a listening socket is, absolute; "" of a connection.
func (i *Inherited) absolute() (string, error) {
	if i.listening == nil {
		return "", nil
	}
	return filepath.Abs(i.path)
}

// listener returns the listening socket. Whoever closes it leaves the inherited descriptor open.
func (i *Inherited) listener() (*net.UnixListener, error) {
	l, err := net.FileListener(i.listening)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// serve serves the clients of the socket.
func (i *Inherited) serve(ctx context.Context, s *vfiouser.Server) error {
	if i.conn != nil {
		return s.ServeConn(ctx, i.conn)
	}
	l, err := i.listener()
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

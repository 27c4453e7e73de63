package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// startServe starts umbra serve with a virtual GPU as a process of its own, and waits until it
// serves. The reader of its standard output is the caller's.
func startServe(t *testing.T) (c *exec.Cmd, out io.ReadCloser, log *bytes.Buffer) {
	exe, err := os.Executable()
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	log = new(bytes.Buffer)
	c = &exec.Cmd{Path: exe, Args: []string{"umbra", "serve", "--json", "--control", "c.sock", "--gpu", "name=a,socket=a.sock,vram=64MiB"}, Stderr: log}
	out, err = c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { c.Process.Kill() })
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return c, out, log
}

func requireNoSockets(t *testing.T) {
	left, err := filepath.Glob("*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestHangup: the server survives SIGHUP, which a closed terminal sends.
func TestHangup(t *testing.T) {
	c, _, log := startServe(t)
	require.NoError(t, c.Process.Signal(syscall.SIGHUP))
	s, err := api.NewClient("c.sock").Status(t.Context())
	require.NoError(t, err)
	require.Len(t, s.GPUs, 1)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.NoError(t, c.Wait(), log.String())
	require.Contains(t, log.String(), "SIGHUP ignored")
	requireNoSockets(t)
}

// TestReaderEnds: the server goes on when the reader of its standard output ends, and its own
// end is no failure.
func TestReaderEnds(t *testing.T) {
	c, out, log := startServe(t)
	require.NoError(t, out.Close())
	require.NoError(t, c.Process.Signal(syscall.SIGUSR1)) // whose report nobody reads
	require.Eventually(t, func() bool {
		_, err := api.NewClient("c.sock").Report(t.Context())
		return err == nil
	}, patience, time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.NoError(t, c.Wait(), log.String())
	require.Contains(t, log.String(), syscall.EPIPE.Error())
	requireNoSockets(t)
}

// parent is a program that starts umbra with a socket as descriptor 3, as a
// management layer does. Its argument is "listening" or "connected".
func parent() {
	if err := startWithFD(os.Args[1] == "listening"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func startWithFD(listening bool) error {
	var theirs *os.File
	var dial func() (*client.Client, error)
	if listening {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "parent.sock", Net: "unix"})
		if err != nil {
			return err
		}
		if theirs, err = l.File(); err != nil {
			return err
		}
		dial = func() (*client.Client, error) { return client.Dial("parent.sock", nil) }
	} else {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		theirs = os.NewFile(uintptr(pair[1]), "theirs")
		dial = func() (*client.Client, error) { return client.NewFD(pair[0], nil) }
	}
	c := exec.Command("umbra", "serve", "--fd", "3")
	c.ExtraFiles = []*os.File{theirs}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	theirs.Close()
	k, err := dial()
	if err != nil {
		return err
	}
	v, err := k.Read32(vfiouser.RegionBAR0, 0)
	fmt.Printf("register 000000 reads %08x\n", v)
	if err != nil {
		return err
	}
	k.Close()
	if listening { // otherwise it ends with its client
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	return c.Wait()
}

// lingering returns a socket whose last close waits for an hour: it has sent more than its peer takes.
func lingering(t *testing.T) (fd int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer out.Close()
	peer, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { peer.Close() })
	require.NoError(t, out.(*net.TCPConn).SetLinger(3600))
	raw, err := out.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(p uintptr) {
		for err == nil {
			_, err = unix.SendmsgN(int(p), make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT)
		}
		fd, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0)
	}))
	require.NoError(t, err)
	return fd
}

// TestLingeringDelaysNobody: descriptors whose close waits, of the client and of one that is refused,
// delay neither the removal of their GPU nor the end of the server.
func TestLingeringDelaysNobody(t *testing.T) {
	c, _, log := startServe(t)
	k, err := client.Dial("a.sock", nil)
	require.NoError(t, err)
	defer k.Close()
	request := wire.Append(nil, wire.Header{Command: wire.DeviceSetIRQs, Size: wire.HeaderSize + wire.IRQSetSize})
	request = append(request, make([]byte, wire.IRQSetSize)...)
	stuck := lingering(t)
	require.NoError(t, k.Send(request[:20], stuck)) // the server must be the last to close the descriptor
	require.NoError(t, unix.Close(stuck))
	require.NoError(t, k.Send(request[20:]))
	require.NoError(t, c.Process.Signal(syscall.SIGSTOP)) // it refuses nobody yet
	_, err = unix.Wait4(c.Process.Pid, nil, unix.WUNTRACED, nil)
	require.NoError(t, err)
	for range 3 {
		fd, err := client.DialFD("a.sock")
		require.NoError(t, err)
		defer unix.Close(fd)
		stuck := lingering(t)
		require.NoError(t, unix.Sendmsg(fd, []byte{0}, unix.UnixRights(stuck), nil, 0))
		require.NoError(t, unix.Close(stuck))
	}
	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	late := time.AfterFunc(patience, func() { c.Process.Kill() })
	_, err = api.NewClient("c.sock").Remove(t.Context(), "a", true)
	require.NoError(t, err)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.NoError(t, c.Wait(), log.String())
	require.True(t, late.Stop())
	require.NotContains(t, log.String(), "a client's thread does not")
	requireNoSockets(t)
}

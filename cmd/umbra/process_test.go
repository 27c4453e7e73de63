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

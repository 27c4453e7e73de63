package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

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

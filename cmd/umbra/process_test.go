package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// parent is a program that starts umbra with a socket as descriptor 3, as a
// management layer does, or with several and their names, as systemd does. Its argument is "listening",
// "connected" or "systemd".
func parent() {
	var err error
	if os.Args[1] == "systemd" {
		err = startAsSystemd()
	} else {
		err = startWithFD(os.Args[1] == "listening")
	}
	if err != nil {
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

// startAsSystemd passes sockets by name, and waits for each state that the server tells.
func startAsSystemd() error {
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "notify.sock", Net: "unixgram"})
	if err != nil {
		return err
	}
	names := []string{config.ControlSocket, config.GPUSocket + "a", config.GPUSocket + "later"}
	c := exec.Command("sh", "-c", "LISTEN_PID=$$ exec umbra serve --vram 256MiB --gpu name=a,vram=64MiB")
	for _, name := range names {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(os.Getenv("WORK"), name+".sock"), Net: "unix"})
		if err != nil {
			return err
		}
		f, err := l.File()
		if err != nil {
			return err
		}
		c.ExtraFiles = append(c.ExtraFiles, f)
	}
	c.Env = append(os.Environ(), fmt.Sprint("LISTEN_FDS=", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"),
		"NOTIFY_SOCKET="+filepath.Join(os.Getenv("WORK"), "notify.sock"), "WATCHDOG_USEC=100000")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	hear := func(what string) error {
		buf := make([]byte, 4096)
		for {
			n, err := notices.Read(buf)
			if err != nil {
				return err
			}
			if strings.Contains(string(buf[:n]), what) {
				fmt.Println("heard", what)
				return nil
			}
		}
	}
	if err := hear("READY=1\nWATCHDOG=1\nSTATUS=1 GPU, 0 clients attached"); err != nil {
		return err
	}
	look := func(socket string) error {
		k, err := client.Dial(socket, nil)
		if err != nil {
			return err
		}
		defer k.Close()
		v, err := k.Read32(vfiouser.RegionBAR0, 0)
		fmt.Printf("%s: register 000000 reads %08x\n", socket, v)
		return errors.Join(err, hear("1 client attached"))
	}
	if err := look("gpu-a.sock"); err != nil {
		return err
	}
	k, ctx := api.NewClient("control.sock"), context.Background()
	for range 2 { // its socket stays the parent's when it is removed
		if _, err := k.Add(ctx, api.AddRequest{GPU: "name=later,vram=64MiB"}); err != nil {
			return err
		}
		if err := look("gpu-later.sock"); err != nil {
			return err
		}
		if _, err := k.Remove(ctx, "later", true); err != nil {
			return err
		}
	}
	return errors.Join(c.Process.Signal(syscall.SIGTERM), hear("STOPPING=1"), c.Wait())
}

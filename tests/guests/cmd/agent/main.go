// Agent is the init of a lab guest. It serves the lab's requests on the second serial
// port until the machine ends. If it ends itself, the kernel panics, and the machine
// ends with the reason on its console.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/guests/agent"
)

// environment is what a user would set. Mesa's OpenCL uses only the drivers that are named, and its Vulkan
// drives a GH100 only on demand: nobody has run the conformance tests on one.
var environment = map[string]string{
	"PATH": "/programs:/usr/bin", "HOME": "/tmp", "RUSTICL_ENABLE": "nouveau", "EGL_PLATFORM": "surfaceless",
	"NVK_I_WANT_A_BROKEN_VULKAN_DRIVER": "1",
}

func main() {
	for name, value := range environment {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
		}
	}
	for {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
		}
		time.Sleep(time.Second)
	}
}

func serve() error {
	if err := mounts(); err != nil {
		return err
	}
	port, err := open(proto.Port)
	if err != nil {
		return err
	}
	defer port.Close()
	release, err := kernelRelease()
	if err != nil {
		return err
	}
	sys := &agent.System{Root: "/", Kernel: release}
	s := agent.New(sys, port)
	fmt.Fprintln(os.Stderr, "The guest is ready. Ctrl-A X ends it; lab call runs commands in it, from another terminal.")
	s.Event(proto.EventReady, proto.Ready{Kernel: release, Uptime: uptime()})
	return s.Serve(port)
}

// mounts mounts the file systems that the commands read, unless they are mounted.
func mounts() error {
	for _, m := range []struct{ fs, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fs, m.dir, m.fs, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.dir, err)
		}
	}
	return nil
}

// open opens a serial port and takes every interpretation of bytes out of its way.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Iflag = 0
	t.Oflag = 0
	t.Lflag = 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

func uptime() float64 {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}

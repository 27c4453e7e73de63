package vfiouser_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// refuse makes a system call fail with EPERM on the thread of the calling goroutine, as a sandbox does.
func refuse(t *testing.T, call uint32) {
	runtime.LockOSThread() // until the goroutine, and with it the thread, ends
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	require.NoError(t, unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
}

// TestServerNeedsItsSystemCalls: a server whose sandbox refuses one of the system calls that signal
// interrupts does not start, and says which.
func TestServerNeedsItsSystemCalls(t *testing.T) {
	const env = "VFIOUSER_TEST_REFUSED"
	calls := map[string]uint32{"io_setup": unix.SYS_IO_SETUP, "io_submit": unix.SYS_IO_SUBMIT, "io_getevents": unix.SYS_IO_GETEVENTS}
	if name := os.Getenv(env); name != "" { // in another process
		refuse(t, calls[name])
		_, err := vfiouser.NewServer(newDevice(t), vfiouser.Options{})
		require.ErrorIs(t, err, unix.EPERM)
		require.ErrorContains(t, err, "vfiouser: "+name+": ")
		return
	}
	for name := range calls {
		c := exec.Command(os.Args[0], "-test.run=^TestServerNeedsItsSystemCalls$")
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%s", env, name))
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

// TestTriggerEndsInASandbox: triggers of a process that may no longer take out ended operations are
// counted, and do not wait for room.
func TestTriggerEndsInASandbox(t *testing.T) {
	r, c := served(t)
	require.NoError(t, c.SetIRQs(dataFD|actTrigger, irqMSI, 0, 1, nil, eventfd(t).FD))
	h := r.dev.Host()
	prompt(t, "Trigger", func() {
		refuse(t, unix.SYS_IO_GETEVENTS)
		for range 1000 {
			h.Trigger(irqMSI, 0)
		}
	})
	before := r.srv.Stats().IRQ
	require.Positive(t, before.Unrouted)
	h.Trigger(irqMSI, 0) // by a thread that may
	require.Equal(t, before.Signalled+1, r.srv.Stats().IRQ.Signalled)
}

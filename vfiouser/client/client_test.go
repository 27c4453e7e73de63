package client_test

import (
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// against returns a client whose server is the test: it reads one message and writes
// answer's result.
func against(t *testing.T, timeout time.Duration, answer func(h wire.Header, payload []byte) []byte) *client.Client {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(p[1])
		buf := make([]byte, 1<<16)
		n, err := unix.Read(p[1], buf)
		if err != nil || n < wire.HeaderSize {
			return
		}
		out := answer(wire.Parse[wire.Header](buf), buf[wire.HeaderSize:n])
		if out == nil {
			_, _ = unix.Read(p[1], buf) // say nothing until the client leaves
			return
		}
		_, _ = unix.Write(p[1], out)
	}()
	c, err := client.NewFD(p[0], &client.Options{NoVersion: true, Timeout: timeout})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return c
}

func reply(h wire.Header, flags, errno uint32, payload []byte) []byte {
	return wire.Message(wire.Header{ID: h.ID, Command: h.Command, Flags: flags, Errno: errno}, payload)
}

// TestBrokenServers: a harness that takes what a broken server says would prove nothing.
func TestBrokenServers(t *testing.T) {
	data := func(n int) func(h wire.Header, p []byte) []byte {
		return func(h wire.Header, p []byte) []byte { return reply(h, 1, 0, append(p[:16:16], make([]byte, n)...)) }
	}
	says := func(flags, errno uint32, payload []byte) func(wire.Header, []byte) []byte {
		return func(h wire.Header, _ []byte) []byte { return reply(h, flags, errno, payload) }
	}
	read := func(c *client.Client) error { _, err := c.Read32(0, 0); return err }
	unmap := func(c *client.Client) error { return c.Unmap(0x1000, 0x1000) }
	version := func(c *client.Client) error { _, err := c.Negotiate(0, 0, ""); return err }
	info := func(c *client.Client) error { _, err := c.RegionInfo(0); return err }
	for _, tt := range []struct {
		name   string
		answer func(h wire.Header, p []byte) []byte
		call   func(c *client.Client) error
		want   error
	}{
		{"good", data(4), read, nil},
		{"data short", data(3), read, client.ErrProtocol},
		{"errno", says(0x21, 22, nil), read, syscall.EINVAL},
		{"errno 0", says(0x21, 0, nil), read, client.ErrProtocol},
		{"other id", func(h wire.Header, p []byte) []byte { h.ID++; return data(4)(h, p) }, read, client.ErrProtocol},
		{"other command", func(h wire.Header, p []byte) []byte { h.Command++; return data(4)(h, p) }, read, client.ErrProtocol},
		{"impossible size", func(wire.Header, []byte) []byte { return []byte{0, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0} }, read, client.ErrProtocol},
		{"closes in a header", func(wire.Header, []byte) []byte { return []byte{1, 2, 3} }, read, io.EOF},
		{"silent", func(wire.Header, []byte) []byte { return nil }, read, os.ErrDeadlineExceeded},
		{"unmap echo differs", says(1, 0, make([]byte, 24)), unmap, client.ErrProtocol},
		{"version reply too long", says(1, 0, []byte("\x00\x00\x00\x00{\"capabilities\":{}}\x00")), version, client.ErrProtocol},
		{"capability outside", says(1, 0, wire.Append(nil, wire.RegionInfo{Argsz: 32, Flags: 15, CapOffset: 32, Size: 4096})), info, client.ErrProtocol},
	} {
		timeout := time.Minute
		if tt.want == os.ErrDeadlineExceeded {
			timeout = 50 * time.Millisecond
		}
		require.ErrorIs(t, tt.call(against(t, timeout, tt.answer)), tt.want, tt.name)
	}
}

// TestEndlessServers: a call ends although the server takes nothing, or sends for ever and never the answer.
func TestEndlessServers(t *testing.T) {
	long := reply(wire.Header{ID: 1, Command: wire.RegionRead}, 1, 0, make([]byte, 1<<20))
	request := wire.Message(wire.Header{ID: 1, Command: wire.DMARead}, make([]byte, wire.DMAAccessSize))
	for name, say := range map[string]func(i int) []byte{
		"nothing":              nil,
		"a reply byte by byte": func(i int) []byte { return long[i : i+1] },
		"requests":             func(int) []byte { return request },
	} {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		c, err := client.NewFD(p[0], &client.Options{NoVersion: true, Timeout: 200 * time.Millisecond})
		require.NoError(t, err)
		var server sync.WaitGroup
		if say == nil {
			require.ErrorIs(t, c.Send(make([]byte, 16<<20)), os.ErrDeadlineExceeded)
		} else {
			server.Go(func() {
				for i, err := 0, error(nil); err == nil; i++ {
					_, err = unix.SendmsgN(p[1], say(i%len(long)), nil, nil, unix.MSG_NOSIGNAL)
					time.Sleep(5 * time.Millisecond)
				}
			})
			_, err = c.Read32(0, 0)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, name)
		}
		c.Close()
		server.Wait()
		unix.Close(p[1])
	}
}

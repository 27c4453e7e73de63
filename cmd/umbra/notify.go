package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/umbra-gpu/umbra/cmd/serve"
)

// notifier tells systemd, or another parent, the state of the server as sd_notify(3) describes. A nil one
// tells nobody.
type notifier struct {
	conn     *net.UnixConn
	watchdog bool
	every    time.Duration // between two states
}

// statusInterval is the time between two states without a watchdog.
const statusInterval = 10 * time.Second

// newNotifier connects to the parent, if it wants to know. It removes the variables, which are for this process alone.
func newNotifier() (*notifier, error) {
	path, limit, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	if path == "" {
		return nil, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	n := &notifier{conn: conn, every: statusInterval}
	usec, err := strconv.ParseInt(limit, 10, 64)
	if err == nil && usec > 1 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog, n.every = true, time.Duration(usec)*time.Microsecond/2
	}
	return n, nil
}

// sendTimeout is how long a parent may take to make room for a state.
const sendTimeout = time.Second

// send sends a state. A parent that does not take it shall not stop the server.
func (n *notifier) send(state string) {
	if n != nil {
		_ = n.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
		_, _ = n.conn.Write([]byte(state))
	}
}

// follow sends READY, and then what the server does, until stop is called. The watchdog hears only of a server
// whose locks are free: its status needs them.
func (n *notifier) follow(s *serve.Server) (stop func()) {
	if n == nil {
		return func() {}
	}
	prefix, beat := "READY=1\n", ""
	if n.watchdog {
		beat = "WATCHDOG=1\n"
	}
	tell := func() {
		if status, err := s.Status(); err == nil {
			clients := 0
			for _, g := range status.GPUs {
				if g.Attached {
					clients++
				}
			}
			n.send(fmt.Sprintf("%s%sSTATUS=%s, %s attached", prefix, beat, plural(uint64(len(status.GPUs)), "GPU", "GPUs"), plural(uint64(clients), "client", "clients")))
		}
		prefix = ""
	}
	tell()
	return serve.Every(n.every, tell)
}

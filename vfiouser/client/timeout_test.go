package client_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestUnresponsiveServer: a server that reads nothing does not keep a client that sends.
func TestUnresponsiveServer(t *testing.T) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(p[1])
	c, err := client.NewFD(p[0], &client.Options{NoVersion: true, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	require.ErrorIs(t, c.Send(make([]byte, 16<<20)), os.ErrDeadlineExceeded)
}

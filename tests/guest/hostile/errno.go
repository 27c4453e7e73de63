package hostile

import (
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// disconnected reports whether an errno is the connection's end and no answer.
func disconnected(e client.Errno) bool {
	switch e {
	case unix.EPIPE, unix.ECONNRESET, unix.EBADF, unix.ENOTCONN, unix.EAGAIN:
		return true
	}
	return false
}

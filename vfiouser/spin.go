package vfiouser

import (
	"time"

	"golang.org/x/sys/unix"
)

// recvSpinning polls the socket for a while before it blocks, but only if the message
// before came that soon: a client that is silent, or slow, costs one fruitless turn,
// and then none until it is quick again.
func (c *conn) recvSpinning(spin time.Duration) (n int, fds []int, cut bool, err error) {
	began := time.Now()
	for c.soon && time.Since(began) < spin {
		n, fds, cut, err = c.sock.recv(c.buf[c.w:], unix.MSG_DONTWAIT)
		if err != unix.EAGAIN {
			c.srv.stats.spun.Add(1)
			return
		}
	}
	if c.soon {
		c.srv.stats.spunInVain.Add(1)
	}
	c.srv.stats.blocked.Add(1)
	n, fds, cut, err = c.sock.recv(c.buf[c.w:], 0)
	c.soon = time.Since(began) < spin
	return
}

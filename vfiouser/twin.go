package vfiouser

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// maxDMAReply is the largest message that a client sends on the twin socket: the answer to a DMA_READ.
const maxDMAReply = wire.HeaderSize + wire.DMAAccessSize + maxDMAMessage

// twinSocket carries DMA_READ, DMA_WRITE and their replies when the client has asked for a second
// socket (twin_socket in VERSION). One goroutine reads the replies; conn.finish ends it.
type twinSocket struct {
	sock sock
	open bool
	done sync.WaitGroup
}

// openTwin makes the socket pair and starts the reader. It returns the client's end, which the
// caller sends with the VERSION reply and closes.
func (c *conn) openTwin() (peer int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	c.twin.sock.fd = pair[0]
	c.twin.open = true
	c.twin.done.Go(c.readTwin)
	return pair[1], nil
}

// readTwin passes each reply to its caller. When the stream ends or breaks, calls fail and
// the connection itself continues without DMA by message.
func (c *conn) readTwin() {
	defer c.calls.close()
	buf := make([]byte, maxDMAReply)
	have := 0
	for {
		n, fds, _, err := c.twin.sock.recv(buf[have:], 0)
		closeFDs(fds)
		if err != nil {
			return
		}
		have += n
		used := 0
		for have-used >= wire.HeaderSize {
			h := wire.Parse[wire.Header](buf[used:])
			if h.Size < wire.HeaderSize || h.Size > maxDMAReply {
				c.srv.stats.count(func(s *Stats) { s.BadStreams++ })
				return
			}
			if have-used < int(h.Size) {
				break
			}
			c.srv.stats.dmaReply(h)
			payload := buf[used+wire.HeaderSize : used+int(h.Size)]
			if h.Flags&wire.TypeMask != wire.TypeReply || !c.calls.finish(h, payload) {
				c.srv.stats.count(func(s *Stats) { s.StrayReply++ })
			}
			used += int(h.Size)
		}
		have = copy(buf, buf[used:have])
	}
}

// closeTwin waits for the reader and closes the socket.
//
// Preconditions: the socket is shut down, and no call can be under way (conn.closing is set,
// and sendMu was taken since).
func (c *conn) closeTwin() {
	if !c.twin.open {
		return
	}
	c.twin.done.Wait()
	unix.Close(c.twin.sock.fd)
}

package vfiouser

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// discards closes what clients sent, and their sockets, in which may be what nobody received. The
// last close of a file waits as long as its owner likes: a socket for its linger time, a FUSE file
// for an answer, a file in an epoll for whoever holds that, memory until its pages are free. So one
// goroutine closes them, except memory that a range holds. It runs while there is any; stuck, it
// delays nobody until it is full: then the server takes nothing more of the kind.
type discards struct {
	waiting atomic.Int64 // len(fds), for the threads that receive

	mu      sync.Mutex
	fds     []int
	closing bool
}

// maxDiscards is when no more are received. One receive, which had begun before, adds maxSCMFDs.
const maxDiscards = 64

func (d *discards) close(fds ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fd := range fds {
		if fd >= 0 { // else its handler has kept it, or there was none
			d.fds = append(d.fds, fd)
		}
	}
	d.waiting.Store(int64(len(d.fds)))
	if len(d.fds) > 0 && !d.closing {
		d.closing = true
		go d.run()
	}
}

// hangUp closes a connection, whose client sees its end at once.
func (d *discards) hangUp(fd int) {
	_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	d.close(fd)
}

func (d *discards) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.fds) > 0 {
		fd := d.fds[0]
		d.mu.Unlock()
		unix.Close(fd)
		d.mu.Lock()
		d.fds = d.fds[1:]
		d.waiting.Store(int64(len(d.fds)))
	}
	d.closing = false
}

func (d *discards) full() bool { return d.waiting.Load() >= maxDiscards }

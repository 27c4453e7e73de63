package vfiouser

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// discards closes descriptors that a client sent. The close of a file waits for the file's system,
// which a client may choose: FUSE answers a flush, or does not. So one goroutine closes what may
// wait. It runs while there is any; stuck, it hurts only its server's client, who can send no more
// descriptors once maxDiscards wait.
type discards struct {
	mu      sync.Mutex
	fds     []int
	closing bool
}

const maxDiscards = 64

func (d *discards) close(fds []int) {
	for _, fd := range fds {
		if fd < 0 {
			continue // its handler has kept it
		}
		if closesAtOnce(fd) {
			unix.Close(fd)
			continue
		}
		d.mu.Lock()
		d.fds = append(d.fds, fd)
		if !d.closing {
			d.closing = true
			go d.run()
		}
		d.mu.Unlock()
	}
}

func (d *discards) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.closing = true; len(d.fds) > 0; d.fds = d.fds[1:] {
		fd := d.fds[0]
		d.mu.Unlock()
		unix.Close(fd)
		d.mu.Lock()
	}
	d.closing = false
}

func (d *discards) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.fds) >= maxDiscards
}

// closesAtOnce reports whether the kernel itself keeps the file: memory, or a file without a path,
// such as an eventfd or a socket.
func closesAtOnce(fd int) bool {
	if inMemory(fd) {
		return true
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && !strings.HasPrefix(name, "/")
}

//go:build libvfiouser

package libvfiouser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// Built reports whether the binding is in this program.
const Built = true

// maxRegion is the largest region that the library can hold.
const maxRegion = 1<<32 - 1

// Transport serves one device with the library. Its zero value is of no use; see New.
type Transport struct {
	dev vfiouser.Device
	log *slog.Logger

	listening func()

	mu      sync.Mutex
	path    string          // while serving, else ""
	wake    int             // eventfd, -1 when not serving
	closing bool            // for good: Close was called
	stop    atomic.Bool     // this serving is to end
	ended   <-chan struct{} // closed when this serving has ended

	irqs    vfiouser.IRQStats // guarded by mu: of the last link that is over
	panics  atomic.Uint64
	clients atomic.Uint64
	refused atomic.Uint64 // by the device

	// The serving thread sets these with mu held. It reads them without, others with mu held.
	ctx  *library
	link *link // of the client, or nil

	// Set by New.
	observer vfiouser.IRQObserver
	regions  [vfiouser.NumRegions]vfiouser.Region
}

// New makes a transport of dev. It fails if the library at hand is not one that this program can
// use, or if it cannot carry dev. Of o, only Log and Listening count: the library has limits of its own.
func New(dev vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
	if err := check(); err != nil {
		return nil, err
	}
	if err := vfiouser.CheckDevice(dev); err != nil {
		return nil, err
	}
	for i, r := range dev.Regions() {
		if r.Size > maxRegion {
			return nil, fmt.Errorf("libvfiouser: region %d has %#x bytes, and the library holds sizes in 32 bits: "+
				"make it smaller, or use the native transport", i, r.Size)
		}
	}
	t := &Transport{dev: dev, log: o.Log, listening: o.Listening, wake: -1}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	t.observer, _ = dev.(vfiouser.IRQObserver)
	copy(t.regions[:], dev.Regions())
	return t, nil
}

// ListenAndServe implements vfiouser.Transport. One call at a time.
func (t *Transport) ListenAndServe(ctx context.Context, path string) error {
	if err := vfiouser.ClearPath(path); err != nil {
		return fmt.Errorf("vfiouser: socket %s: %w", path, err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	t.mu.Lock()
	if t.closing || t.path != "" {
		t.mu.Unlock()
		unix.Close(wake)
		return vfiouser.ErrServerClosed
	}
	ended := make(chan struct{})
	t.path, t.wake, t.ended = path, wake, ended
	t.stop.Store(false)
	t.mu.Unlock()

	undo := context.AfterFunc(ctx, func() { t.interrupt(ended) })
	err = t.thread(path, wake)
	undo()
	t.mu.Lock()
	t.path, t.wake = "", -1
	t.mu.Unlock()
	unix.Close(wake)
	close(ended)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// thread serves on one OS thread, from the library's context's making to its end.
func (t *Transport) thread(path string, wake int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	lib, err := create(path, t)
	if err != nil {
		return fmt.Errorf("libvfiouser: socket %s: %w", path, err)
	}
	t.mu.Lock()
	t.ctx = lib
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.ctx = nil
		t.mu.Unlock()
		t.lost() // while the client's memory is still mapped
		lib.destroy()
		os.Remove(path)
	}()
	if err := lib.describe(t.dev); err != nil {
		return fmt.Errorf("libvfiouser: the library refuses the device: %w; the native transport may take it", err)
	}
	if t.listening != nil {
		t.listening()
	}
	for !t.stop.Load() {
		if err := t.step(lib, wake); err != nil {
			return err
		}
	}
	return vfiouser.ErrServerClosed
}

// step waits for one thing to do, and does it.
func (t *Transport) step(lib *library, wake int) error {
	if t.link == nil {
		return t.accept(lib, wake)
	}
	woken, served, err := lib.step(wake)
	if woken {
		drain(wake)
	}
	if t.link != nil {
		if served {
			t.link.retry()
		}
		t.link.flush(lib)
	}
	switch {
	case err == nil, errors.Is(err, unix.EAGAIN):
		return nil
	case t.link == nil:
		return nil // the client has disconnected, and the LOST_CONN callback has run
	}
	// The stream is out of step, and the library keeps the connection: it has to be cut.
	t.log.Warn("vfio-user connection ended", slog.Any("error", err))
	hangUp(lib.pollFD(), t.path)
	return nil
}

// accept waits for a client and negotiates with it.
func (t *Transport) accept(lib *library, wake int) error {
	p := [2]unix.PollFd{{Fd: int32(lib.pollFD()), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(p[:], -1); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	if p[1].Revents != 0 {
		drain(wake)
	}
	if p[0].Revents == 0 || t.stop.Load() {
		return nil
	}
	if err := vfiouser.Admit(t.dev); err != nil {
		t.refuse(lib.pollFD(), err)
		return nil
	}
	err := lib.attach()
	if err != nil {
		vfiouser.Dismiss(t.dev)
	}
	switch {
	case err == nil:
	case t.stop.Load(), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	default:
		t.log.Info("vfio-user client not accepted", slog.Any("error", err))
		return nil
	}
	t.clients.Add(1)
	l := newLink(t, wake)
	t.mu.Lock()
	t.link = l
	t.mu.Unlock()
	t.contain("Attached", func() { t.dev.Attached(vfiouser.NewHost(l)) })
	return nil
}

// refuse closes a connection before the library accepts it.
func (t *Transport) refuse(listener int, why error) {
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return
	}
	t.refused.Add(1) // before the client can see it
	t.log.Warn("vfio-user client refused", slog.Any("error", why))
	unix.Close(fd)
}

// lost ends the client's link, if there is one: the library reports that the client has
// disconnected, or serving ends.
func (t *Transport) lost() {
	l := t.link
	if l == nil {
		return
	}
	l.close()
	t.contain("Detached", t.dev.Detached)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link = nil
	s := l.stats()
	t.irqs = s
}

// Close implements vfiouser.Transport.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closing = true
	ended := t.ended
	serving := t.path != ""
	t.mu.Unlock()
	if serving {
		t.interrupt(ended)
	}
	return nil
}

// interrupt makes the serving thread end, also in the middle of a client's message, and waits
// until ended is closed. It may be called from any goroutine. A client that the library accepts
// at this very moment is not seen, and may say nothing: so it is looked for again.
func (t *Transport) interrupt(ended <-chan struct{}) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		t.cut(ended)
		select {
		case <-ended:
			return
		case <-again.C:
		}
	}
}

// cut has the serving thread leave, and wakes it, unless the serving with that end is over.
func (t *Transport) cut(ended <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wake < 0 || t.ended != ended {
		return
	}
	t.stop.Store(true)
	signal(t.wake)
	if t.ctx != nil {
		hangUp(t.ctx.pollFD(), t.path)
	}
}

// hangUp shuts down a descriptor if it is a socket at path: the number was read without a lock
// against the library's closing it, and might be another file's by now.
func hangUp(fd int, path string) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return
	}
	if u, ok := sa.(*unix.SockaddrUnix); ok && u.Name == path {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}

// Stats implements vfiouser.Transport: clients, panics and interrupts.
func (t *Transport) Stats() vfiouser.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := vfiouser.Stats{Clients: t.clients.Load(), Refused: t.refused.Load(), Panics: t.panics.Load(), IRQ: t.irqs}
	if t.link != nil {
		s.IRQ = t.link.stats()
	}
	return s
}

// contain runs a call of the device. A panic in it is reported, not passed on: below is C.
func (t *Transport) contain(what string, fn func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			t.panics.Add(1)
			t.log.Warn("vfio-user device panicked", slog.String("in", what), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	fn()
	return true
}

func (t *Transport) errno(what string, fn func() error) syscall.Errno {
	var err error
	if !t.contain(what, func() { err = fn() }) {
		return syscall.EIO
	}
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno) && errno > 0 && errno < 4096:
		return errno
	}
	return syscall.EIO
}

var _ vfiouser.Transport = (*Transport)(nil)

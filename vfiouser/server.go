package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrServerClosed is returned by Serve after Close.
var ErrServerClosed = errors.New("vfiouser: server closed")

// ErrStuck means that a client's thread made no progress towards its end within Options.EndTimeout,
// besides its device's Detached: a file of the client's makes the kernel wait. The
// thread is left to itself and calls the device again once it continues; Close waits for it again.
var ErrStuck = errors.New("vfiouser: the client's thread waits in the kernel for something of the client's and does not end")

// Server serves one device, to one client after the other.
type Server struct {
	dev   Device
	opts  Options
	stats counters

	signals  *signaller
	discards discards // of clients
	refusals discards // connections; a stranger must not stop what the client sends
	holes    holes

	logStream, logPanic, logBusy, logFull, logAdmit, logMemory logLimit
	logRules                                                   [numDMARules]logLimit

	closing chan struct{} // closed by Close

	mu       sync.Mutex
	closed   bool
	listener map[*net.UnixListener]struct{}
	serving  sync.WaitGroup // for each listener
	current  *conn          // the client, if any
	irqs     IRQStats       // of the last client
}

// NewServer makes a server of dev. It fails if dev's regions or interrupts cannot be those of
// a PCI function.
func NewServer(dev Device, o Options) (*Server, error) {
	if err := CheckDevice(dev); err != nil {
		return nil, err
	}
	signals, err := signals()
	if err != nil {
		return nil, err
	}
	s := &Server{
		dev: dev, opts: o.withDefaults(), signals: signals,
		closing: make(chan struct{}), listener: make(map[*net.UnixListener]struct{}),
	}
	if o.MaxDMAAlloc > 0 {
		if s.holes.faults, err = openUserfaults(); err != nil {
			return nil, fmt.Errorf("vfiouser: memory that the device allocates in clients' files cannot be bounded: %w; permit userfaultfd, or set no bound", err)
		}
		s.holes.most, s.holes.refuse = o.MaxDMAAlloc&^(pageSize-1), func() { s.refuse(DMAAlloc) }
	}
	return s, nil
}

// Listen makes a listening socket at path that only this user may connect to. An existing
// socket is replaced if no server listens on it; any other file is an error that names the path.
func Listen(path string) (*net.UnixListener, error) {
	// The socket gets its permissions before it gets its name.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	var l net.Listener
	err := ClearPath(path)
	if err == nil {
		l, err = private.Listen(context.Background(), "unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("vfiouser: socket %s: %w", path, err)
	}
	return l.(*net.UnixListener), nil
}

// ClearPath makes room for a socket at path: it removes an existing socket if no server
// listens on it; any other file is an error.
func ClearPath(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("a file that is not a socket is there; remove it or choose another path")
	}
	probe, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		probe.Close()
		return errors.New("another server listens there; stop it or choose another path")
	}
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot tell whether a server listens there: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stale and not removable: %w", err)
	}
	return nil
}

// CloseListener closes l without a wait. With it go connections that nobody accepted, with what their
// clients sent, which a goroutine of its own closes: see discards.
func CloseListener(l *net.UnixListener) {
	last, err := duplicate(l)
	if err != nil { // no descriptor is free
		go l.Close()
		return
	}
	l.Close()
	go unix.Close(last)
}

// CloseConn closes a client's connection, and what it sent that nobody received, without a wait.
func CloseConn(nc *net.UnixConn) { go nc.Close() }

// wake ends accepts on l. A close could be the last, which waits.
func wake(l *net.UnixListener) { _ = l.SetDeadline(time.Unix(1, 0)) }

// ListenAndServe serves at path until ctx ends or Close.
func (s *Server) ListenAndServe(ctx context.Context, path string) error {
	l, err := Listen(path)
	if err != nil {
		return err
	}
	if s.opts.Listening != nil {
		s.opts.Listening()
	}
	return s.Serve(ctx, l)
}

// Serve takes clients from l, one after the other, until ctx ends (it returns the context's
// error) or Close (ErrServerClosed). It closes l and has ended the client when it returns, or
// adds ErrStuck to its error.
//
// A connection made while a client is attached is closed immediately and logged.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	if !s.track(l) {
		CloseListener(l)
		return ErrServerClosed
	}
	stop := context.AfterFunc(ctx, func() { wake(l) })
	defer stop()
	err := s.accept(ctx, l)
	s.untrack(l)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return errors.Join(err, s.endCurrent())
}

func (s *Server) accept(ctx context.Context, l *net.UnixListener) error {
	delay := time.Duration(0)
	pause := func() (ended bool) {
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(delay):
			return false
		case <-ctx.Done():
		case <-s.closing:
		}
		return true
	}
	for {
		for s.refusals.full() || s.discards.full() {
			if pause() {
				return ErrServerClosed
			}
			s.warn(&s.logFull, "vfio-user clients wait: the kernel does not close descriptors of earlier ones; if it never does, remove the GPU and add it again")
		}
		nc, err := l.AcceptUnix()
		switch {
		case err == nil:
			delay = 0
			fd, err := detachFD(nc)
			if err != nil {
				s.warn(&s.logStream, "vfio-user connection lost", slog.Any("error", err))
				continue
			}
			if _, err := s.start(ctx, fd); err != nil {
				s.refusals.hangUp(fd)
				if errors.Is(err, ErrBusy) {
					s.warn(&s.logBusy, "vfio-user client refused: another is attached; a socket serves one guest, give each a GPU and a socket of its own")
				}
			}
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return ErrServerClosed
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ECONNABORTED):
			pause()
		default:
			return fmt.Errorf("vfiouser: accept: %w", err)
		}
	}
}

// ServeConn serves the client on an open connection, which becomes the server's, and returns
// when it has disconnected. It fails at once if a client is attached.
func (s *Server) ServeConn(ctx context.Context, nc *net.UnixConn) error {
	fd, err := detachFD(nc)
	if err != nil {
		return err
	}
	c, err := s.start(ctx, fd)
	if err != nil {
		s.refusals.hangUp(fd)
		return err
	}
	select {
	case <-c.ended:
		return ctx.Err()
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.end(c))
	}
}

// ErrBusy means that the device has a client.
var ErrBusy = errors.New("vfiouser: the device has a client")

// start makes fd the client. If the previous client has hung up, start waits until its
// remaining messages are served, or until ctx ends or Close.
func (s *Server) start(ctx context.Context, fd int) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.current != nil {
		c := s.current
		if !c.hungUp() {
			add(&s.stats.Refused, 1)
			return nil, ErrBusy
		}
		s.mu.Unlock()
		select {
		case <-c.ended:
		case <-ctx.Done():
		case <-s.closing:
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if s.closed {
			break
		}
	}
	if s.closed {
		return nil, ErrServerClosed
	}
	c := newConn(s, fd)
	s.current = c
	go func() {
		c.run()
		s.mu.Lock()
		s.irqs = c.irqs.snapshot()
		s.current = nil
		s.mu.Unlock()
		close(c.ended)
	}()
	return c, nil
}

// detachFD takes the descriptor out of the net poller, in blocking mode.
func detachFD(nc *net.UnixConn) (int, error) {
	defer CloseConn(nc) // the last close if there is no other descriptor
	fd, err := duplicate(nc)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		go unix.Close(fd)
		return -1, os.NewSyscallError("fcntl", err)
	}
	return fd, nil
}

func duplicate(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if cerr := raw.Control(func(p uintptr) { fd, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return -1, cerr
	}
	return fd, os.NewSyscallError("dup", err)
}

// Close ends the client and all listeners, whose paths are free when it returns. If the client's end takes
// longer than Options.EndTimeout it returns ErrStuck, and may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	for l := range s.listener {
		wake(l)
	}
	s.mu.Unlock()
	s.serving.Wait()
	return s.endCurrent()
}

func (s *Server) endCurrent() error {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	return s.end(c)
}

// maxLooks bounds what a client can add by mapping files that are larger than memory.
const maxLooks = 64

// end disconnects c and waits for the end of its thread. What the device does in Detached is not
// the client's to stretch, so that may take as long as it takes. For each range of the client's map
// the thread waits for the device, so a range that was freed begins the timeout anew. The kernel
// frees the pages of a file with its last mapping, which takes up to 2 s per GiB on a busy machine.
func (s *Server) end(c *conn) error {
	c.shutdown()
	late := time.NewTicker(s.opts.EndTimeout)
	defer late.Stop()
	before, looks := c.mem.freed.Load(), uint64(0)
	for {
		select {
		case <-c.ended:
			return nil
		case <-late.C:
			freed := c.mem.freed.Load()
			if freed != before || c.detaching.Load() {
				before, looks = freed, 0
				continue
			}
			if looks++; looks > min(c.mem.bytes.Load()>>29, maxLooks) {
				return ErrStuck
			}
		}
	}
}

func (s *Server) track(l *net.UnixListener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listener[l] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) untrack(l *net.UnixListener) {
	defer s.serving.Done()
	CloseListener(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listener, l)
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	out := s.stats.snapshot()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.IRQ = s.irqs
	if s.current != nil {
		out.IRQ = s.current.irqs.snapshot()
	}
	return out
}

// logLimit lets one line a second through and counts the rest.
type logLimit struct {
	next       atomic.Int64 // unix nanoseconds
	suppressed atomic.Int64 // lines since the last one
}

func (s *Server) warn(l *logLimit, msg string, attrs ...slog.Attr) {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(time.Second)) {
		l.suppressed.Add(1)
		return
	}
	if n := l.suppressed.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("suppressed", n))
	}
	s.opts.Log.LogAttrs(context.Background(), slog.LevelWarn, msg, attrs...)
}

package doorbell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Doors are the doorbells of a card that are not trapped.
type Doors interface {
	// Look looks at each once, and rings those that were written since. It returns how
	// many were, and how many can be. It may take locks for a moment, and waits for
	// nothing else. It is called on the poller's goroutine alone.
	Look() (rang, watched int)
}

// Poller looks at Doors from time to time.
type Poller struct {
	doors Doors
	stats *Stats
	begin time.Time
	pace  atomic.Pointer[Pace]

	event   int         // an eventfd, which ends a wait
	poked   atomic.Bool // Wake was called since the last look
	waiting atomic.Bool // for longer than Pace.Fast
	closing atomic.Bool
	ended   sync.WaitGroup

	// The goroutine's own.
	cadence cadence
	fds     [1]unix.PollFd
	until   unix.Timespec
}

// New starts a poller. It sleeps until Wake.
func New(p Pace, d Doors, s *Stats) (*Poller, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd to wake who looks for doorbells: %w", err)
	}
	l := &Poller{doors: d, stats: s, begin: time.Now(), event: fd}
	l.SetPace(p)
	l.ended.Go(l.run)
	return l, nil
}

// SetPace changes how often it looks, from the next look on. The pace is one that
// Check takes.
func (l *Poller) SetPace(p Pace) {
	p = p.withDefaults()
	l.pace.Store(&p)
	l.Wake()
}

// Wake tells that there may be something to look at that there was not, or that
// somebody has a reason to ring soon. It never waits.
func (l *Poller) Wake() {
	l.stats.Wakes.Add(1)
	if !l.poked.Load() {
		l.poked.Store(true)
	}
	if l.waiting.Load() {
		l.signal()
	}
}

func (l *Poller) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.event, one[:]) // it can only be full, which wakes too
}

// Close ends the poller. When it returns, Doors are not called any more.
func (l *Poller) Close() error {
	l.closing.Store(true)
	l.signal()
	l.ended.Wait()
	return unix.Close(l.event)
}

// exact makes the thread's timers exact: by default the kernel may be 50 us late.
const exact = 1

func (l *Poller) run() {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, exact, 0, 0, 0)
	l.fds[0] = unix.PollFd{Fd: int32(l.event), Events: unix.POLLIN}
	last := l.now()
	for !l.closing.Load() {
		poked := l.poked.Swap(false)
		began := l.now()
		rang, watched := l.doors.Look()
		now := l.now()
		l.stats.Looks.Add(1)
		if rang > 0 {
			l.stats.reacted(now-last, rang)
		}
		last = began
		if watched == 0 {
			l.stats.Sleeps.Add(1)
			l.wait(-1, true)
			last = l.now() // nobody could have rung
			continue
		}
		pace := l.pace.Load()
		d := l.cadence.next(*pace, now, now-began, rang > 0 || poked)
		l.wait(d, d > pace.Fast)
	}
}

func (l *Poller) now() time.Duration { return time.Since(l.begin) }

// wait waits for d, or, if it is negative, until somebody wakes it. While it is to
// be woken early, Wake does so.
func (l *Poller) wait(d time.Duration, early bool) {
	if early {
		l.account()
		l.waiting.Store(true)
		defer l.waiting.Store(false)
		if l.poked.Load() || l.closing.Load() {
			return
		}
	}
	var until *unix.Timespec
	if d >= 0 {
		l.until = unix.NsecToTimespec(int64(d))
		until = &l.until
	}
	l.fds[0].Revents = 0
	n, err := unix.Ppoll(l.fds[:], until, nil)
	if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
		var b [8]byte
		_, _ = unix.Read(l.event, b[:])
	}
}

// account notes what the poller's thread has taken.
func (l *Poller) account() {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) == nil {
		l.stats.CPU.Store(t.Nano())
	}
}

package doorbell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

	event   int           // an eventfd, which ends a short wait
	rouse   chan struct{} // ends a rest; of capacity 1
	poked   atomic.Bool   // Wake was called since the last look
	waiting atomic.Uint32 // a waiting
	closing atomic.Bool
	ended   sync.WaitGroup

	// The goroutine's own.
	cadence cadence
	fds     [1]unix.PollFd
	until   unix.Timespec
	timer   *time.Timer
	exact   bool          // the goroutine has a thread of its own, with exact timers
	counted time.Duration // what that thread had taken when it was last accounted for
}

// waiting is how the poller can be woken.
type waiting = uint32

const (
	awake   waiting = iota // or it looks so soon that nobody need wake it
	dozing                 // for a moment, in the kernel
	resting                // for so long that its thread does other work
)

// rest is from where on a wait is a rest. A thread that blocks in the kernel every few
// milliseconds, with exact timers, keeps Go's own supervision of threads awake: that
// took twice what looking did. What Go's timers are late by is little against a rest.
const rest = time.Millisecond

// New starts a poller. It sleeps until Wake.
func New(p Pace, d Doors, s *Stats) (*Poller, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd to wake who looks for doorbells: %w", err)
	}
	l := &Poller{doors: d, stats: s, begin: time.Now(), event: fd, rouse: make(chan struct{}, 1), timer: time.NewTimer(never)}
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
	l.signal()
}

// signal ends the wait that the poller is in, if it is in one.
func (l *Poller) signal() {
	switch l.waiting.Load() {
	case dozing:
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(l.event, one[:]) // it can only be full, which wakes too
	case resting:
		select {
		case l.rouse <- struct{}{}:
		default: // full, which wakes too
		}
	}
}

// Close ends the poller. When it returns, Doors are not called any more.
func (l *Poller) Close() error {
	l.closing.Store(true)
	l.signal()
	l.ended.Wait()
	return unix.Close(l.event)
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

func (l *Poller) run() {
	defer l.own(false)
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
			l.account(now - began)
			l.rest(never)
			last = l.now() // nobody could have rung
			continue
		}
		pace := l.pace.Load()
		d := l.cadence.next(*pace, now, now-began, rang > 0 || poked)
		if d > pace.Fast || !l.exact {
			l.account(now - began)
		}
		if d >= rest {
			l.rest(d)
		} else {
			l.doze(d, d > pace.Fast)
		}
		// Woken early it looks early, but takes no more of a processor than it may.
		earliest := now + pace.after(now-began)
		for left := earliest - l.now(); left > 0 && !l.closing.Load(); left = earliest - l.now() {
			l.doze(left, false)
		}
	}
}

func (l *Poller) now() time.Duration { return time.Since(l.begin) }

// own has the goroutine keep its thread for itself, with timers that are exact: by
// default the kernel may be 50 us late. Or it gives it back as it was.
func (l *Poller) own(on bool) {
	switch {
	case on == l.exact:
		return
	case on:
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		l.counted = threadTime()
	default:
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // as the thread began
		runtime.UnlockOSThread()
	}
	l.exact = on
}

// ready tells in which wait the poller is from now on, and whether it need not begin.
func (l *Poller) ready(w waiting) bool {
	l.waiting.Store(w)
	return l.poked.Load() || l.closing.Load()
}

// rest waits for d, or until somebody wakes it.
func (l *Poller) rest(d time.Duration) {
	l.own(false)
	defer l.waiting.Store(awake)
	if l.ready(resting) {
		return
	}
	l.timer.Reset(d)
	select {
	case <-l.rouse:
	case <-l.timer.C:
	}
}

// doze waits for d, which is short; if it is to be woken early, Wake does so.
func (l *Poller) doze(d time.Duration, early bool) {
	l.own(true)
	if early {
		defer l.waiting.Store(awake)
		if l.ready(dozing) {
			return
		}
	}
	l.until = unix.NsecToTimespec(int64(d))
	l.fds[0].Revents = 0
	n, err := unix.Ppoll(l.fds[:], &l.until, nil)
	if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
		var b [8]byte
		_, _ = unix.Read(l.event, b[:])
	}
}

// account notes what the poller has taken: of its own thread what the kernel says,
// and where it has none the time of a look.
func (l *Poller) account(look time.Duration) {
	if !l.exact {
		l.stats.CPU.Add(int64(look))
		return
	}
	now := threadTime()
	l.stats.CPU.Add(int64(now - l.counted))
	l.counted = now
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

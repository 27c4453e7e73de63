package process

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
)

// crew are threads that run slots of a step beside the server's own goroutine, each on a processor of its own if it can. They sleep in
// the kernel, since what Go's scheduler starts may wait until what runs machine code comes back: most of a step. Each thread is a
// goroutine's that ends with the process.
type crew struct {
	hands [jit.Slots]hand // the first stands for the server's own goroutine
}

type hand struct {
	turn, taken, done atomic.Uint32 // how often it was called, the last turn that it or finish took, and that it was through
	cpu               atomic.Int32  // one more than the processor where it began, 0 if it sleeps
	work              func()        // of the next turn; nil if there is no goroutine yet
}

func newCrew() *crew {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + jit.Slots) // one that comes back from the kernel never waits
	return new(crew)
}

// start lets a hand do work.
func (c *crew) start(n int, work func()) {
	h := &c.hands[n]
	begun := h.work != nil
	h.work = work
	h.turn.Add(1)
	if begun {
		wake(&h.turn)
		return
	}
	go func() {
		runtime.LockOSThread()
		for turn := uint32(1); ; turn++ {
			wait(&h.turn, turn-1)
			if h.taken.CompareAndSwap(turn-1, turn) {
				c.begin(n)
				h.work()
				h.cpu.Store(0)
				h.done.Store(turn)
				wake(&h.done)
			}
		}
	}()
}

// awake is how long finish looks before it sleeps: to wake takes longer than the end of most turns.
const awake = 30 * time.Microsecond

// finish waits until all are through. If the time is over it takes the turns of those that are not awake yet, and returns one of
// them, or 0: where other work keeps the processors, a step would wait for them longer than it took.
func (c *crew) finish(over bool) (late int) {
	until := time.Now().Add(awake)
	for i := range c.hands {
		h := &c.hands[i]
		turn := h.turn.Load()
		if over && h.done.Load() != turn && h.taken.CompareAndSwap(turn-1, turn) {
			h.done.Store(turn)
			late = i
		}
		for done := h.done.Load(); done != turn; done = h.done.Load() {
			if time.Now().After(until) {
				wait(&h.done, done)
			}
		}
	}
	return late
}

// begin says that a hand's thread runs here. The kernel may have woken it where another one's runs, which then waits as long, though
// other processors have nothing to do: it moves.
func (c *crew) begin(n int) {
	var used unix.CPUSet
	here, shared := current(), false
	for i := range c.hands {
		if cpu := int(c.hands[i].cpu.Load()) - 1; cpu >= 0 && i != n {
			used.Set(cpu)
			shared = shared || cpu == here
		}
	}
	if shared && leave(&used) {
		here = current()
	}
	c.hands[n].cpu.Store(int32(here) + 1)
}

// leave moves this thread to a processor that is not used, if there is one.
func leave(used *unix.CPUSet) bool {
	var allowed, free unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil { // there are more than a set has
		return false
	}
	for i := range free {
		free[i] = allowed[i] &^ used[i]
	}
	if free.Count() == 0 || unix.SchedSetaffinity(0, &free) != nil { // which moves it at once
		return false
	}
	_ = unix.SchedSetaffinity(0, &allowed) // fails where these have just been taken from it: it may stay there
	return true
}

// current is the processor of this thread.
func current() int {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}

// Operations of futexes of one process, from linux/futex.h.
const (
	futexPrivate = 128
	futexWait    = 0 | futexPrivate
	futexWake    = 1 | futexPrivate
)

// wait sleeps while a word has a value.
func wait(word *atomic.Uint32, value uint32) {
	for word.Load() == value {
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value), 0, 0, 0)
	}
}

func wake(word *atomic.Uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1, 0, 0, 0)
}

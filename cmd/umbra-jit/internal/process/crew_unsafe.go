package process

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
)

// crew are threads that run the further slots of a step, each on a processor of its own if it can. They sleep in the kernel, since
// what Go's scheduler starts may wait until what runs machine code comes back: most of a step. Each thread is a goroutine's that
// ends with the process.
type crew struct {
	hands   [jit.Slots]hand // the first stands for the server's own goroutine
	allowed unix.CPUSet
}

type hand struct {
	turn, done atomic.Uint32 // how often it was called, and was through
	cpu        atomic.Int32  // one more than the processor where it began, 0 if it sleeps
	work       func()        // of the next turn; nil if there is no goroutine yet
}

func newCrew() *crew {
	c := new(crew)
	if unix.SchedGetaffinity(0, &c.allowed) != nil {
		c.allowed.Zero() // there are more than a set has: threads stay where they are
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + jit.Slots) // one that comes back from the kernel never waits
	return c
}

// start lets the hand of a slot do work.
func (c *crew) start(slot int, work func()) {
	h := &c.hands[slot]
	begun := h.work != nil
	h.work = work
	h.turn.Add(1)
	if begun {
		wake(&h.turn)
		return
	}
	go func() {
		runtime.LockOSThread()
		for done := uint32(0); ; done++ {
			wait(&h.turn, done)
			c.begin(slot)
			h.work()
			h.cpu.Store(0)
			h.done.Store(done + 1)
			wake(&h.done)
		}
	}()
}

// awake is how long finish looks before it sleeps: to wake takes longer than the end of most turns.
const awake = 30 * time.Microsecond

// finish waits until all are through.
func (c *crew) finish() {
	until := time.Now().Add(awake)
	for i := range c.hands {
		h := &c.hands[i]
		for turn := h.turn.Load(); h.done.Load() != turn; {
			if time.Now().After(until) {
				wait(&h.done, turn-1)
			}
		}
	}
}

// begin says that a slot's thread runs here. The kernel may have woken it where another one's runs, which then waits as long, though
// other processors have nothing to do: it moves.
func (c *crew) begin(slot int) {
	free, here, shared := c.allowed, current(), false
	for i := range c.hands {
		if cpu := int(c.hands[i].cpu.Load()) - 1; cpu >= 0 && i != slot {
			free.Clear(cpu)
			shared = shared || cpu == here
		}
	}
	if shared && free.Count() > 0 && unix.SchedSetaffinity(0, &free) == nil { // which moves it at once
		_ = unix.SchedSetaffinity(0, &c.allowed)
		here = current()
	}
	c.hands[slot].cpu.Store(int32(here) + 1)
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

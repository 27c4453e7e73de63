// Package fakeworker is a [worker.Worker] for tests without a GPU: objects are memory, spaces are flat tables, and the
// channels execute copies of class c8b5 and the methods of the host of c86f. It refuses what the host's driver refuses or
// does not survive: maps over maps, maps of ranges that nobody reserved, and parts of parts without end.
//
// Worker.mu guards all. The channels run on one goroutine, which takes it for each piece of work, and calls
// Events without it.
package fakeworker

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
)

const (
	page = 4 << 10
	// MaxDepth is how often a part of a map may be unmapped.
	MaxDepth = 16
)

var errEnded = fmt.Errorf("the process has ended")

// Worker is a fake.
type Worker struct {
	// Refuse makes maps fail, by a status of the driver.
	Refuse func(worker.Step) uint32
	// Fail is called with what a worker must never be told.
	Fail func(format string, args ...any)

	mu       sync.Mutex
	events   worker.Events
	bell     []byte
	bellFile *os.File
	objects  map[uint32]object
	spaces   map[uint32]*space
	channels map[uint32]*channel
	slices   map[uint32]uint64
	dead     bool
	frozen   bool
	Free0    uint64 // of the card's memory
	resets   int
	deepest  int
	began    time.Time
	done     chan struct{}
	running  sync.WaitGroup
}

type object struct {
	mem  []byte
	card bool
}

// space is a flat table, and the maps that are behind it.
type space struct {
	pages map[uint64]leaf // by page
	maps  []mapping
	stale bool
}

type leaf struct {
	object   uint32
	off      uint64
	readOnly bool
}

type mapping struct {
	va, size uint64
	object   uint32
	page     uint64
	depth    int
}

// New returns a worker whose card has so much memory.
func New(ev worker.Events, free uint64) *Worker {
	w := &Worker{
		events: ev, objects: make(map[uint32]object), spaces: make(map[uint32]*space), channels: make(map[uint32]*channel),
		slices: make(map[uint32]uint64), Free0: free, began: time.Now(), done: make(chan struct{}),
		Fail: func(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }, Refuse: func(worker.Step) uint32 { return 0 },
	}
	w.bellFile, w.bell = memory(nvrm.DoorbellBytes)
	w.running.Go(w.run)
	return w
}

func memory(n uint64) (*os.File, []byte) {
	fd, err := unix.MemfdCreate("fake", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	f := os.NewFile(uintptr(fd), "fake")
	if err := f.Truncate(int64(n)); err != nil {
		panic(err)
	}
	return f, mapped(f, 0, n)
}

func mapped(f *os.File, off, n uint64) []byte {
	mem, err := unix.Mmap(int(f.Fd()), int64(off), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return mem
}

// call runs f, unless the process has ended.
func (w *Worker) call(f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errEnded
	}
	return f()
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), f.Name()), err
}

// Info implements worker.Worker, as the other methods do.
func (w *Worker) Info() (nvrm.Info, error) {
	return nvrm.Info{Name: "Fake H200", Total: w.Free0, Free: w.Free0, Copies: []int{0, 1, 2, 3, 4}}, w.call(func() error { return nil })
}

func (w *Worker) Doorbell() (f *os.File, err error) {
	err = w.call(func() error { f, err = dup(w.bellFile); return err })
	return f, err
}

func (w *Worker) NewVRAM(id uint32, size uint64) (f *os.File, err error) {
	err = w.call(func() error {
		if size > w.Free0 {
			return &nvrm.Error{Call: "take memory", Status: nvrm.StatusNoMemory}
		}
		var mem []byte
		f, mem = memory(size)
		return w.enter(id, object{mem, true})
	})
	return f, err
}

func (w *Worker) Register(id uint32, f *os.File, off, n uint64) error {
	return w.call(func() error {
		if off%page != 0 || n%page != 0 || n == 0 {
			w.Fail("register %#x bytes at %#x", n, off)
		}
		return w.enter(id, object{mapped(f, off, n), false})
	})
}

func (w *Worker) enter(id uint32, o object) error {
	if _, ok := w.objects[id]; ok {
		w.Fail("object %d is there already", id)
	}
	w.objects[id] = o
	return nil
}

func (w *Worker) Free(id uint32) error {
	return w.call(func() error {
		o, ok := w.objects[id]
		if !ok {
			w.Fail("free object %d: there is none", id)
		}
		for n, s := range w.spaces {
			for _, m := range s.maps {
				if m.object == id {
					w.Fail("free object %d: space %d maps it at %#x", id, n, m.va)
				}
			}
			if s.stale {
				w.Fail("free object %d: space %d was not invalidated", id, n)
			}
		}
		delete(w.objects, id)
		return unix.Munmap(o.mem)
	})
}

func (w *Worker) NewSpace(id uint32) error {
	return w.call(func() error {
		if w.spaces[id] != nil {
			w.Fail("space %d is there already", id)
		}
		w.spaces[id] = &space{pages: make(map[uint64]leaf)}
		return nil
	})
}

func (w *Worker) FreeSpace(id uint32) error {
	return w.call(func() error {
		for _, c := range w.channels {
			if c.cfg.Space == id {
				w.Fail("free space %d: a channel uses it", id)
			}
		}
		if w.spaces[id].stale {
			w.Fail("free space %d: it was not invalidated", id)
		}
		delete(w.spaces, id)
		return nil
	})
}

func (w *Worker) Invalidate(id uint32) error {
	return w.call(func() error { w.spaces[id].stale = false; return nil })
}

func (w *Worker) NewChannel(id uint32, c worker.Channel) (uint32, error) {
	return id | 7<<16, w.call(func() error {
		if w.channels[id] != nil || w.spaces[c.Space] == nil {
			w.Fail("channel %d is there, or its space is not", id)
		}
		w.channels[id] = &channel{cfg: c, id: id, on: true}
		w.slices[id] = c.Slice
		return nil
	})
}

func (w *Worker) FreeChannel(id uint32) error {
	return w.call(func() error {
		if w.channels[id] == nil {
			w.Fail("free channel %d: there is none", id)
		}
		delete(w.channels, id)
		return nil
	})
}

func (w *Worker) Enable(id uint32, on bool) error {
	return w.call(func() error { w.channels[id].on = on; return nil })
}

func (w *Worker) SetSlice(id uint32, us uint64) error {
	return w.call(func() error { w.slices[id] = us; return nil })
}

func (w *Worker) Reset(id uint32) error {
	err := w.call(func() error { w.resets++; w.channels[id].stopped = true; return nil })
	if err == nil {
		w.events.Stopped(id, 43, nvrm.Fault{})
	}
	return err
}

// Close implements worker.Worker. Kill is the end of a process by itself.
func (w *Worker) Close() error { w.end(); return nil }

func (w *Worker) Kill() {
	if w.end() {
		w.events.Ended(errEnded)
	}
}

func (w *Worker) end() bool {
	w.mu.Lock()
	was := w.dead
	w.dead = true
	w.mu.Unlock()
	if !was {
		close(w.done)
		w.running.Wait()
	}
	return !was
}

// Freeze makes channels execute nothing, as while others have the card.
func (w *Worker) Freeze(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = on
}

// Look calls f with what a test may look at.
func (w *Worker) Look(f func(Look)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(Look{w})
}

// Look is a worker with its lock.
type Look struct{ w *Worker }

// At returns the memory behind an address from there to the end of its page, nil if nothing is mapped.
func (l Look) At(space uint32, va uint64) []byte {
	s := l.w.spaces[space]
	x, ok := s.pages[va/page]
	if !ok {
		return nil
	}
	return l.w.objects[x.object].mem[x.off+va%page : x.off+page]
}

// Writable reports whether channels may write at an address.
func (l Look) Writable(space uint32, va uint64) bool {
	return !l.w.spaces[space].pages[va/page].readOnly
}

// Counts are those of objects, spaces, channels, resets, and the depth of parts.
func (l Look) Counts() (objects, spaces, channels, resets, deepest int) {
	return len(l.w.objects), len(l.w.spaces), len(l.w.channels), l.w.resets, l.w.deepest
}

// Pages is how many pages a space maps below nvrm.OwnFirst.
func (l Look) Pages(space uint32) (n int) {
	for at := range l.w.spaces[space].pages {
		if at*page < nvrm.OwnFirst {
			n++
		}
	}
	return n
}

// Slice is a channel's time slice.
func (l Look) Slice(channel uint32) uint64 { return l.w.slices[channel] }

func word(mem []byte, off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }

func takeBell(mem []byte) uint32 { return atomic.SwapUint32(word(mem, nvrm.DoorbellOffset), 0) }

package vfiouser

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// irqTable holds a client's interrupt vectors. It is empty until open, and routes nothing after close.
// Its lock is not held in a system call that can wait: not even to close a descriptor, for a client
// decides what else the last close of an open file description waits for.
type irqTable struct {
	signals  *signaller
	discards *discards
	watched  bool // there may be eventfds that mask or unmask; the connection's thread's

	mu      sync.Mutex // guards what follows
	indexes [NumIRQs]irqIndex
	stats   IRQStats
	scratch iocb
}

type irqIndex struct {
	flags   IRQFlags
	vectors []vector
}

// vector is one interrupt.
type vector struct {
	fds     [3]int // eventfds by use, -1 when absent
	masked  bool
	pending bool // triggered while masked
}

// Uses of a vector's eventfds.
const (
	useTrigger = iota // the server signals it
	useMask           // masks the vector when signalled
	useUnmask         // unmasks it when signalled: KVM's resample
)

var unrouted = vector{fds: [3]int{-1, -1, -1}}

// IRQStats count what became of triggers.
type IRQStats struct {
	Signalled uint64 // eventfd written
	Latched   uint64 // masked: stays pending
	Unrouted  uint64 // no eventfd, vector absent, or no client
}

// open gives the table its vectors, unmasked and unrouted.
func (t *irqTable) open(irqs []IRQ) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, q := range irqs {
		t.indexes[i] = irqIndex{q.Flags, make([]vector, q.Count)}
		for v := range t.indexes[i].vectors {
			t.indexes[i].vectors[v] = unrouted
		}
	}
}

func (t *irqTable) count(index uint32) int {
	if index >= NumIRQs {
		return 0
	}
	return len(t.indexes[index].vectors)
}

func (t *irqTable) trigger(index, vec int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.triggerLocked(index, vec)
}

// vector is nil for one that does not exist.
func (t *irqTable) vector(index, vec int) *vector {
	if index < 0 || index >= NumIRQs || vec < 0 || vec >= len(t.indexes[index].vectors) {
		return nil
	}
	return &t.indexes[index].vectors[vec]
}

func (t *irqTable) triggerLocked(index, vec int) {
	v := t.vector(index, vec)
	switch {
	case v == nil:
		t.stats.Unrouted++
	case v.masked:
		v.pending = true
		t.stats.Latched++
	case v.fds[useTrigger] < 0:
		t.stats.Unrouted++
	default:
		v.masked = t.indexes[index].flags&IRQAutomasked != 0
		if t.signals.signal(v.fds[useTrigger], &t.scratch) {
			t.stats.Signalled++
		} else {
			t.stats.Unrouted++
		}
	}
}

// clear takes back a trigger that waits for its vector to be unmasked.
func (t *irqTable) clear(index, vec int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.vector(index, vec); v != nil {
		v.pending = false
	}
}

// clearAll takes back every waiting trigger: a device that was reset has none.
func (t *irqTable) clearAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.indexes {
		for v := range t.indexes[i].vectors {
			t.indexes[i].vectors[v].pending = false
		}
	}
}

func (t *irqTable) setMask(index, vec int, masked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := &t.indexes[index].vectors[vec]
	v.masked = masked
	if !masked && v.pending {
		v.pending = false
		t.triggerLocked(index, vec)
	}
}

// attach makes fd, or nothing with -1, an eventfd of a vector and closes the one before.
func (t *irqTable) attach(index, vec, use, fd int) {
	t.mu.Lock()
	p := &t.indexes[index].vectors[vec].fds[use]
	old := *p
	*p = fd
	t.mu.Unlock()
	t.watched = t.watched || use != useTrigger
	t.discards.close(old)
}

// disable returns an index to its first state: no descriptors, nothing masked or pending.
func (t *irqTable) disable(index int) {
	var old []int
	t.mu.Lock()
	for i := range t.indexes[index].vectors {
		v := &t.indexes[index].vectors[i]
		old = append(old, v.fds[:]...)
		*v = unrouted
	}
	t.mu.Unlock()
	t.discards.close(old...)
}

// close ends the table: all later triggers are unrouted.
func (t *irqTable) close() {
	for i := range t.indexes {
		t.disable(i)
	}
}

func (t *irqTable) snapshot() IRQStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// irqWatch is a mask or unmask eventfd to poll.
type irqWatch struct {
	index, vec int
	masked     bool // type of its signals
}

// watches appends what to poll, and notes whether there is any. The descriptors stay valid on the connection's thread, which
// alone attaches and detaches.
func (t *irqTable) watches(fds []unix.PollFd, ws []irqWatch) ([]unix.PollFd, []irqWatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.indexes {
		for n := range t.indexes[i].vectors {
			for _, use := range []int{useMask, useUnmask} {
				if fd := t.indexes[i].vectors[n].fds[use]; fd >= 0 {
					fds, ws = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}), append(ws, irqWatch{i, n, use == useMask})
				}
			}
		}
	}
	t.watched = len(ws) > 0
	return fds, ws
}

// drain takes an eventfd's count without waiting and reports whether there was one. It uses
// RWF_NOWAIT because O_NONBLOCK would be shared with the client.
func drain(fd int) bool {
	var b [8]byte
	n, err := unix.Preadv2(fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EOPNOTSUPP) {
		n, err = unix.Read(fd, b[:])
	}
	return n == 8 && err == nil
}

// isEventFD reports whether fd is an eventfd. Anything else could make a trigger wait for the
// client. Without /proc the client is believed.
func isEventFD(fd int) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err != nil || name == "anon_inode:[eventfd]"
}

func (c *conn) setIRQs(rq *request) syscall.Errno {
	s := wire.Parse[wire.IRQSet](rq.payload)
	data := rq.payload[wire.IRQSetSize:]
	if errno := c.checkIRQSet(&s, data, rq.fds); errno != 0 {
		return errno
	}
	if s.Count == 0 { // NONE|TRIGGER, start 0
		c.irqs.disable(int(s.Index))
		return 0
	}
	for i := range int(s.Count) {
		c.setIRQ(&s, i, data, rq)
	}
	return 0
}

// checkIRQSet refuses what VFIO refuses.
func (c *conn) checkIRQSet(s *wire.IRQSet, data []byte, fds []int) syscall.Errno {
	kind, action := s.Flags&wire.IRQDataKinds, s.Flags&wire.IRQActions
	count := uint32(c.irqs.count(s.Index))
	single := s.Index == IRQErr || s.Index == IRQReq
	switch {
	case s.Argsz < wire.IRQSetSize,
		s.Flags&^(wire.IRQDataKinds|wire.IRQActions) != 0,
		!oneBit(kind), !oneBit(action),
		s.Index >= NumIRQs,
		s.Start >= count, s.Count > count-s.Start,
		single && (action != wire.IRQActionTrigger || s.Count > 1),
		s.Count == 0 && (s.Start != 0 || kind != wire.IRQDataNone || action != wire.IRQActionTrigger),
		kind != wire.IRQDataEventFD && len(fds) > 0,
		len(fds) > 0 && len(fds) != int(s.Count),
		kind == wire.IRQDataBool && len(data) != int(s.Count):
		return syscall.EINVAL
	}
	for _, fd := range fds {
		if !isEventFD(fd) {
			return syscall.EINVAL
		}
	}
	return 0
}

func oneBit(v uint32) bool { return v != 0 && v&(v-1) == 0 }

// setIRQ applies a checked SET_IRQS to vector start+i.
func (c *conn) setIRQ(s *wire.IRQSet, i int, data []byte, rq *request) {
	index, vec := int(s.Index), int(s.Start)+i
	action := s.Flags & wire.IRQActions
	if s.Flags&wire.IRQDataEventFD != 0 {
		fd := -1
		if len(rq.fds) > 0 {
			fd = rq.take(i)
		}
		c.irqs.attach(index, vec, eventfdFor[action], fd)
		if action == wire.IRQActionTrigger && fd >= 0 && c.observer != nil {
			c.observer.IRQUnmasked(index, vec)
		}
		return
	}
	if s.Flags&wire.IRQDataBool != 0 && data[i] == 0 {
		return
	}
	if action == wire.IRQActionTrigger {
		c.irqs.trigger(index, vec)
		return
	}
	c.maskIRQ(index, vec, action == wire.IRQActionMask)
}

var eventfdFor = map[uint32]int{
	wire.IRQActionTrigger: useTrigger,
	wire.IRQActionMask:    useMask,
	wire.IRQActionUnmask:  useUnmask,
}

// maskIRQ masks a vector, or unmasks it and notifies the device.
func (c *conn) maskIRQ(index, vec int, masked bool) {
	c.irqs.setMask(index, vec, masked)
	if !masked && c.observer != nil {
		c.observer.IRQUnmasked(index, vec)
	}
}

//go:build libvfiouser

package libvfiouser

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// link is one client's connection for its device's host. It records operations that only the
// serving thread may do in the library, and flush executes them.
type link struct {
	t    *Transport
	wake int
	mem  vfiouser.Memory
	work atomic.Bool // flush has something to do; the eventfd was signalled

	mu     sync.Mutex
	closed bool
	irqs   [vfiouser.NumIRQs]irqIndex
	counts vfiouser.IRQStats

	unheard bool // INTx had no eventfd: its line may still be high. The serving thread's
}

type irqIndex struct {
	automask bool
	vectors  []vector
}

type vector struct {
	masked  bool
	pending bool // triggered while masked
	raised  bool // for flush to signal
}

func newLink(t *Transport, wake int) *link {
	l := &link{t: t, wake: wake}
	for i, q := range t.dev.IRQs() {
		l.irqs[i] = irqIndex{q.Flags&vfiouser.IRQAutomasked != 0, make([]vector, q.Count)}
	}
	return l
}

// Memory implements vfiouser.Link.
func (l *link) Memory() *vfiouser.Memory { return &l.mem }

// Trigger implements vfiouser.Link.
func (l *link) Trigger(index, vec int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.vector(index, vec)
	switch {
	case v == nil:
		l.counts.Unrouted++
	case v.masked:
		v.pending = true
		l.counts.Latched++
	default:
		v.masked = l.irqs[index].automask
		l.raise(v)
	}
}

// raise has flush signal v.
//
// Preconditions: l.mu held.
func (l *link) raise(v *vector) {
	v.raised = true
	l.need()
}

// need wakes the serving thread to flush. l.mu is held, so that the eventfd is open.
func (l *link) need() {
	if !l.work.Swap(true) {
		signal(l.wake)
	}
}

// vector is nil for one that does not exist, whose client has disconnected, or that the
// library confuses with vector 0 (ERR and REQ).
func (l *link) vector(index, vec int) *vector {
	if l.closed || index < 0 || index > vfiouser.IRQMSIX || vec < 0 || vec >= len(l.irqs[index].vectors) {
		return nil
	}
	return &l.irqs[index].vectors[vec]
}

// Clear implements vfiouser.Link.
func (l *link) Clear(index, vec int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.vector(index, vec); v != nil {
		v.pending = false
	}
}

// clearAll takes back what waits: a device that was reset raises nothing.
func (l *link) clearAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.irqs {
		for v := range l.irqs[i].vectors {
			l.irqs[i].vectors[v].pending = false
		}
	}
}

// mask is the client's word on some vectors of an index.
func (l *link) mask(index, start, count int, masked bool) {
	for vec := start; vec < start+count; vec++ {
		l.mu.Lock()
		v := l.vector(index, vec)
		if v == nil {
			l.mu.Unlock()
			return
		}
		v.masked = masked
		if !masked && v.pending {
			v.pending = false
			v.masked = l.irqs[index].automask
			l.raise(v)
		}
		l.mu.Unlock()
		if o := l.t.observer; o != nil && !masked {
			o.IRQUnmasked(index, vec)
		}
	}
}

// flush executes recorded operations. It runs on the serving thread, between two messages.
func (l *link) flush(lib *library) {
	if !l.work.Load() {
		return
	}
	l.work.Store(false)
	for i := range l.irqs {
		for n := range l.irqs[i].vectors {
			if l.lower(i, n) {
				l.signalled(i, n, lib.trigger(n))
			}
		}
	}
}

// lower withdraws the signal of a vector, and reports whether one was pending. The library
// signals without l.mu: a client's eventfd that is full, and blocks, keeps the client's own
// thread only.
func (l *link) lower(index, vec int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.irqs[index].vectors[vec]
	raised := v.raised
	v.raised = false
	return raised
}

func (l *link) signalled(index, vec int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.counts.Signalled++
		return
	}
	l.counts.Unrouted++ // there is no eventfd, or it is full and does not block
	l.irqs[index].vectors[vec].masked = false
	l.unheard = l.unheard || index == vfiouser.IRQINTx
}

// retry asks the device for its INTx line again, after a message that may have brought the
// missing eventfd: the library does not report it.
func (l *link) retry() {
	if !l.unheard {
		return
	}
	l.unheard = false
	if l.t.observer != nil {
		l.t.contain("IRQ observer", func() { l.t.observer.IRQUnmasked(vfiouser.IRQINTx, 0) })
	}
}

func (l *link) stats() vfiouser.IRQStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// close ends the link: triggers are unrouted from now on, DMA fails.
func (l *link) close() {
	for _, r := range l.mem.Ranges() { // of a client that has left, none
		_ = l.mem.Withdraw(r.Addr, r.Size) // cannot fail: no other goroutine withdraws ranges
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// DMA implements vfiouser.Link. Mapped memory is copied. DMA by message is not bound: the
// library as of 2022 sends a request for any address of a range to the range's first.
func (l *link) DMA(_ context.Context, addr uint64, p []byte, write bool) error {
	err := l.mem.Copy(addr, p, write)
	if err == vfiouser.ErrByMessage {
		return vfiouser.ErrNoMessageDMA
	}
	return err
}

var eventfdOne = binary.NativeEndian.AppendUint64(nil, 1)

func signal(fd int) { _, _ = unix.Write(fd, eventfdOne) } // a full eventfd is signalled too

func drain(fd int) {
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
}

var _ vfiouser.Link = (*link)(nil)

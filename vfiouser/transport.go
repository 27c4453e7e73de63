package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"
)

// Transport serves one device over vfio-user: Server, or the binding to a library in package
// libvfiouser. Both call the device as documented at Device.
type Transport interface {
	// ListenAndServe serves at path, one client after the other, until ctx ends (it returns
	// the context's error) or Close (ErrServerClosed).
	ListenAndServe(ctx context.Context, path string) error
	// Stats returns the counters that the transport keeps; it leaves the others 0.
	Stats() Stats
	// Close ends the client and the listening, and waits for both.
	Close() error
}

var _ Transport = (*Server)(nil)

// The rest of this file is for transports in other packages.

// ErrByMessage means that a range is in the DMA map, but that a part of it has no descriptor
// and must be requested from the client.
var ErrByMessage = errors.New("vfiouser: range reached by DMA message only")

// Copy copies between p and memory at addr, over as many mappings as it takes. After an error
// a part may have been copied, and after ErrFault p is undefined.
func (m *Memory) Copy(addr uint64, p []byte, write bool) (err error) {
	want := unix.PROT_READ
	if write {
		want = unix.PROT_WRITE
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	defer catchFault(setPanicOnFault(), &err)
	for len(p) > 0 {
		r := m.find(addr)
		if r == nil || r.prot&want == 0 {
			return ErrNotMapped
		}
		off := addr - r.addr
		n := int(min(uint64(len(p)), r.size-off))
		switch {
		case r.data == nil:
			err = ErrByMessage
		case r.holes != nil && !r.populate(off, uint64(n)):
			return ErrFault
		case write:
			copy(r.data[off:], p[:n])
			r.wrote(off, uint64(n))
		default:
			copy(p[:n], r.data[off:])
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return err
}

// Provide enters a range whose bytes a transport has mapped; data is nil if it could not map
// them, else r.Size bytes that stay mapped until the range is withdrawn. EEXIST for an overlap.
func (m *Memory) Provide(r MemoryRange, data []byte) error {
	if r.Size == 0 || r.Addr+r.Size < r.Addr || data != nil && uint64(len(data)) != r.Size {
		return fmt.Errorf("%w: range %#x+%#x with %d bytes of memory", fs.ErrInvalid, r.Addr, r.Size, len(data))
	}
	n := &mapping{addr: r.Addr, size: r.Size, data: data}
	if r.Read {
		n.prot |= unix.PROT_READ
	}
	if r.Write {
		n.prot |= unix.PROT_WRITE
	}
	m.mu.Lock()
	i, meets := m.place(r.Addr, r.Size)
	if meets {
		m.mu.Unlock()
		return unix.EEXIST
	}
	m.maps = slices.Insert(m.maps, i, n)
	m.mu.Unlock()
	m.notify(n, Span{})
	return nil
}

// Withdraw takes out the ranges inside the size bytes at addr, when the device no longer uses them.
// The bytes are the transport's again. EINVAL if a range is there only in part.
func (m *Memory) Withdraw(addr, size uint64) error { return m.remove(addr, size) }

// CheckDevice refuses a device with regions or interrupts that no PCI function can have.
func CheckDevice(dev Device) error {
	if err := checkRegions(dev.Regions()); err != nil {
		return err
	}
	return checkIRQs(dev.IRQs())
}

// setPanicOnFault makes a fault at an address outside the Go heap a panic of this goroutine
// instead of the end of the process, and returns what was set before.
func setPanicOnFault() bool { return debug.SetPanicOnFault(true) }

// catchFault is deferred around accesses to client memory: it turns a fault into ErrFault,
// passes other panics on, and restores what setPanicOnFault returned.
func catchFault(before bool, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	switch {
	case p == nil:
	case isFault(p):
		*err = ErrFault
	default:
		panic(p)
	}
}

func isFault(p any) bool {
	e, ok := p.(runtime.Error)
	if !ok {
		return false
	}
	_, ok = e.(interface{ Addr() uintptr })
	return ok
}

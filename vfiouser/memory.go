package vfiouser

import (
	"errors"
	"math"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Errors of guest memory.
var (
	// ErrNotMapped means that an address range is not, or not wholly, in the DMA map with
	// the required permission.
	ErrNotMapped = errors.New("vfiouser: range not in the DMA map")
	// ErrFault means that mapped memory has no page: the client truncated its file.
	ErrFault = errors.New("vfiouser: guest memory faulted")
)

// MemoryRange is one entry of the DMA map.
type MemoryRange struct {
	Addr, Size  uint64 // bus address, bytes
	Read, Write bool   // the device's rights
	Mapped      bool   // has a descriptor that is mapped, so that its bytes are at hand
}

// MemoryChange is one change of the DMA map.
type MemoryChange struct {
	MemoryRange
	Removed bool
	// Span is, in a removal, what holds all the ranges that one DMA_UNMAP removes: a watcher that
	// waits for its device need wait only once for all of them, at the first.
	Span Span
	// Bytes are the range's if it is Mapped. The watcher may use them, as the range permits,
	// until it has returned from the change that removes the range. The guest and other
	// devices change them at any time: copy once, check the copy. A client that cuts its file
	// short makes an access fault; a goroutine that touches them should call
	// debug.SetPanicOnFault and recover.
	Bytes []byte
	// Wrote tells the dirty log that the device wrote n of the Bytes at off. It must be called
	// after the write, and before the watcher returns from the removal. It costs next to
	// nothing while no log is on.
	Wrote func(off, n uint64)
	// Populate must be called before each access to the n Bytes at off, unless it is nil, by a
	// goroutine that has called debug.SetPanicOnFault: their pages may be absent. It reports
	// whether they are present now; an access to an absent page faults.
	Populate func(off, n uint64) bool
	// File has the Bytes from Off on. It is nil if the transport does not know it, or keeps no more files of
	// the client open. It is the transport's, and open until the watcher has returned from the removal.
	File *os.File
	Off  uint64
}

// Span is a range of bus addresses.
type Span struct{ Addr, Size uint64 }

// Memory is the guest's memory by bus address: what the client has mapped for DMA. A device
// copies it by Host.DMARead and Host.DMAWrite, or takes the bytes from Watch.
type Memory struct {
	mu   sync.RWMutex
	maps []*mapping // by address, disjoint; only the connection's thread changes it, with mu held

	log dirtyLog // guarded by mu

	files files         // of the connection's thread
	freed atomic.Uint64 // ranges
	bytes atomic.Uint64 // of files, in the ranges that are not freed

	watchMu  sync.Mutex
	watchers []*watcher
}

type watcher struct{ fn func(MemoryChange) }

type mapping struct {
	addr, size uint64
	prot       int // PROT_READ, PROT_WRITE
	data       []byte
	file       *fileMap                   // nil unless mapped by this package
	offset     uint64                     // of addr in the file
	holes      *holes                     // nil unless pages may be absent
	dirty      atomic.Pointer[dirtyPages] // nil unless logging
}

func (m *Memory) find(addr uint64) *mapping {
	if i, meets := m.place(addr, 0); meets {
		return m.maps[i-1]
	}
	return nil
}

// place returns which entry a range would be, and whether it meets a neighbour.
//
// Preconditions: m.mu held, or called by the connection's thread.
func (m *Memory) place(addr, size uint64) (i int, meets bool) {
	i = sort.Search(len(m.maps), func(i int) bool { return m.maps[i].addr > addr })
	return i, i > 0 && addr-m.maps[i-1].addr < m.maps[i-1].size || i < len(m.maps) && m.maps[i].addr-addr < size
}

// Ranges returns the map, by address.
func (m *Memory) Ranges() []MemoryRange {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]MemoryRange, 0, len(m.maps))
	for _, r := range m.maps {
		out = append(out, r.public())
	}
	return out
}

// Watch has fn called for each change of the map, on the connection's thread: after a range
// came in, before its DMA_MAP is answered; after a range left the map, before its pages go and
// its DMA_UNMAP is answered. fn may wait until the device no longer uses a removed range, but
// not for the client. A watcher that is set in Device.Attached is told of every range.
func (m *Memory) Watch(fn func(MemoryChange)) (stop func()) {
	w := &watcher{fn}
	m.watchMu.Lock()
	m.watchers = append(m.watchers, w)
	m.watchMu.Unlock()
	return func() {
		m.watchMu.Lock()
		defer m.watchMu.Unlock()
		if i := slices.Index(m.watchers, w); i >= 0 {
			m.watchers = slices.Delete(slices.Clone(m.watchers), i, i+1)
		}
	}
}

// notify tells of a range that came in, or that left with gone.
func (m *Memory) notify(r *mapping, gone Span) {
	m.watchMu.Lock()
	ws := slices.Clip(m.watchers)
	m.watchMu.Unlock()
	for _, w := range ws {
		c := MemoryChange{MemoryRange: r.public(), Removed: gone.Size > 0, Span: gone, Bytes: r.data, Wrote: r.wrote}
		if r.file != nil && r.file.kept != nil {
			c.File, c.Off = r.file.kept.File, r.offset
		}
		if r.holes != nil {
			c.Populate = r.populate
		}
		w.fn(c)
	}
}

// populate makes bytes present that are about to be accessed.
func (r *mapping) populate(off, n uint64) bool { return r.holes.populate(r.data, off, n) }

func (r *mapping) public() MemoryRange {
	return MemoryRange{r.addr, r.size, r.prot&unix.PROT_READ != 0, r.prot&unix.PROT_WRITE != 0, r.data != nil}
}

// maxRange bounds one range, also one without a descriptor, as libvfio-user does: 8 TiB.
const maxRange = 8 << 40

// mapRequest is one DMA_MAP, checked for everything but its place in the map.
type mapRequest struct {
	addr, size, offset uint64
	prot               int
	fd                 int  // -1 without; stays the caller's
	fileIO             bool // of FILE_IO, which needs a file in memory
}

// add enters a range. The same range again is no error and no change. No lock is held while the
// system maps the file: it may wait there for the client.
//
// Errors: EEXIST for an overlap; a refusal for the limits of o; EACCES, EINVAL and mmap's own for the
// descriptor.
func (m *Memory) add(q mapRequest, o *Options) error {
	if q.size > maxRange {
		return refusal(DMAMemory)
	}
	file, err := inspect(q, o)
	if err != nil {
		return err
	}
	i, meets := m.place(q.addr, q.size)
	switch {
	case i > 0 && m.maps[i-1].same(q, file):
		return nil
	case meets:
		return unix.EEXIST
	case len(m.maps) >= o.MaxDMARegions:
		return refusal(DMARegions)
	}
	r := &mapping{addr: q.addr, size: q.size, prot: q.prot, offset: q.offset}
	if q.fd >= 0 {
		if r.file, err = m.files.open(q, file, o); err != nil {
			return err
		}
		if r.file.watched {
			r.holes = m.files.holes
		}
		r.data = r.file.data[q.offset-r.file.base:][:q.size:q.size]
	}
	m.mu.Lock()
	if err = m.log.start(r); err == nil {
		m.maps = slices.Insert(m.maps, i, r)
		m.bytes.Add(uint64(len(r.data)))
	}
	m.mu.Unlock()
	if err != nil {
		m.files.close(r)
		return err
	}
	m.notify(r, Span{})
	return nil
}

func (r *mapping) same(q mapRequest, file clientFile) bool {
	if r.addr != q.addr || r.size != q.size || r.prot != q.prot {
		return false
	}
	if q.fd < 0 {
		return r.file == nil
	}
	return r.file != nil && r.offset == q.offset && r.file.of == file.id
}

// remove takes out the ranges inside the size bytes at addr, as VFIO does: QEMU unmaps whole spans of
// an IOMMU's pages.
//
// Errors: EINVAL for a span that is empty, wraps, or holds a range only in part; the map is as before.
func (m *Memory) remove(addr, size uint64) error {
	if size == 0 || addr+(size-1) < addr {
		return unix.EINVAL
	}
	return m.removeSpan(addr, addr+(size-1))
}

func (m *Memory) removeAll() { _ = m.removeSpan(0, math.MaxUint64) }

// removeSpan is remove by the first and the last byte. It takes out a range at a time, so that a
// watcher that panics costs no more than its own notice when the rest is removed later.
func (m *Memory) removeSpan(first, last uint64) error {
	i := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].last() >= first })
	end := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].addr > last })
	if i < end && (m.maps[i].addr < first || m.maps[end-1].last() > last) {
		return unix.EINVAL
	}
	if i >= end {
		return nil
	}
	gone := Span{m.maps[i].addr, m.maps[end-1].last() - m.maps[i].addr}
	gone.Size += min(1, ^gone.Size) // all addresses are one more than fit
	for ; end > i; end-- {
		m.mu.Lock()
		r := m.maps[end-1]
		m.maps = slices.Delete(m.maps, end-1, end)
		m.mu.Unlock()
		m.drop(r, gone)
	}
	return nil
}

func (r *mapping) last() uint64 { return r.addr + (r.size - 1) }

func (m *Memory) empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.maps) == 0
}

// drop ends a range that is in the map no more: watchers first, then the pages. The pages go even
// when a watcher panics.
func (m *Memory) drop(r *mapping, gone Span) {
	defer m.free(r)
	m.notify(r, gone)
}

func (m *Memory) free(r *mapping) {
	m.mu.Lock()
	m.log.stop(r)
	m.mu.Unlock()
	n := uint64(len(r.data))
	m.files.close(r)
	m.bytes.Add(-n)
	m.freed.Add(1)
}

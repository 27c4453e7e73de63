package vfiouser

import (
	"errors"
	"fmt"
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

// What bounds the DMA map. VFIO answers the same errno where its own entries are spent.
var (
	errRegions  = fmt.Errorf("vfiouser: no more ranges in the DMA map: %w", unix.ENOSPC)
	errMappings = fmt.Errorf("vfiouser: no more mappings for the DMA map: %w", unix.ENOSPC)
)

// MemoryRange is one entry of the DMA map.
type MemoryRange struct {
	Addr, Size  uint64 // bus address, bytes
	Read, Write bool   // the device's rights
	Mapped      bool   // has a descriptor, so that its bytes are at hand
}

// MemoryChange is one change of the DMA map.
type MemoryChange struct {
	MemoryRange
	Removed bool
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
}

// Memory is the guest's memory by bus address: what the client has mapped for DMA. A device
// copies it by Host.DMARead and Host.DMAWrite, or takes the bytes from Watch.
type Memory struct {
	mu   sync.RWMutex
	maps []*mapping // by address, disjoint

	log dirtyLog // guarded by mu

	files  map[fileKey]*fileMap // guarded by mu
	mapped int                  // mappings of this process that the map takes; guarded by mu

	watchMu  sync.Mutex
	watchers []*watcher
}

type watcher struct{ fn func(MemoryChange) }

type mapping struct {
	addr, size uint64
	prot       int // PROT_READ, PROT_WRITE
	data       []byte
	file       *fileMap                   // nil without a descriptor
	offset     uint64                     // of addr in the file
	dirty      atomic.Pointer[dirtyPages] // nil unless logging
}

// fileKey names a file mapping that ranges may share: guests hand over one memfd many times
// with other offsets.
type fileKey struct {
	dev, ino uint64
	prot     int
}

// fileMap is one mmap of a client's file, from base on.
type fileMap struct {
	key    fileKey
	base   uint64
	data   []byte
	refs   int
	shared bool // listed in Memory.files
}

func (m *Memory) find(addr uint64) *mapping {
	i := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].addr > addr })
	if i == 0 || addr-m.maps[i-1].addr >= m.maps[i-1].size {
		return nil
	}
	return m.maps[i-1]
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

func (m *Memory) notify(r *mapping, removed bool) {
	m.watchMu.Lock()
	ws := slices.Clip(m.watchers)
	m.watchMu.Unlock()
	for _, w := range ws {
		w.fn(MemoryChange{MemoryRange: r.public(), Removed: removed, Bytes: r.data, Wrote: r.wrote})
	}
}

func (r *mapping) public() MemoryRange {
	return MemoryRange{r.addr, r.size, r.prot&unix.PROT_READ != 0, r.prot&unix.PROT_WRITE != 0, r.data != nil}
}

// mapRequest is one DMA_MAP, checked for everything but its place in the map.
type mapRequest struct {
	addr, size, offset uint64
	prot               int
	fd                 int // -1 without; stays the caller's
}

// add enters a range. The same range again is no error and no change.
//
// Errors: EEXIST for an overlap; errRegions and errMappings for the limits of o; EACCES,
// EINVAL and mmap's own for the descriptor.
func (m *Memory) add(q mapRequest, o *Options) error {
	key, st, err := fileIdentity(q)
	if err != nil {
		return err
	}
	m.mu.Lock()
	i := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].addr > q.addr })
	if same := i > 0 && m.maps[i-1].same(q, key); same {
		m.mu.Unlock()
		return nil
	}
	if m.overlaps(i, q.addr, q.size) {
		m.mu.Unlock()
		return unix.EEXIST
	}
	if len(m.maps) >= o.MaxDMARegions {
		m.mu.Unlock()
		return errRegions
	}
	r := &mapping{addr: q.addr, size: q.size, prot: q.prot, offset: q.offset}
	if q.fd >= 0 {
		f, err := m.openFile(q, key, st, o.MaxDMAMappings)
		if err != nil {
			m.mu.Unlock()
			return err
		}
		r.file, r.data = f, f.data[q.offset-f.base:][:q.size:q.size]
	}
	if err := m.log.start(r); err != nil {
		m.mu.Unlock()
		m.closeFile(r)
		return err
	}
	m.maps = slices.Insert(m.maps, i, r)
	m.mu.Unlock()
	m.notify(r, false)
	return nil
}

func (r *mapping) same(q mapRequest, key fileKey) bool {
	if r.addr != q.addr || r.size != q.size || r.prot != q.prot || (r.file != nil) != (q.fd >= 0) {
		return false
	}
	return r.file == nil || r.offset == q.offset && r.file.key.dev == key.dev && r.file.key.ino == key.ino
}

// fileIdentity checks that the rights and the length of q's descriptor cover the range.
// Memory past the end of a file would fault at the first access.
func fileIdentity(q mapRequest) (fileKey, *unix.Stat_t, error) {
	if q.fd < 0 {
		return fileKey{}, nil, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(q.fd, &st); err != nil {
		return fileKey{}, nil, err
	}
	fl, err := unix.FcntlInt(uintptr(q.fd), unix.F_GETFL, 0)
	if err != nil {
		return fileKey{}, nil, err
	}
	if q.prot&unix.PROT_WRITE != 0 && fl&unix.O_ACCMODE == unix.O_RDONLY || fl&unix.O_ACCMODE == unix.O_WRONLY {
		return fileKey{}, nil, unix.EACCES
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && (q.offset > uint64(st.Size) || q.size > uint64(st.Size)-q.offset) {
		return fileKey{}, nil, unix.EINVAL
	}
	return fileKey{uint64(st.Dev), st.Ino, q.prot}, &st, nil
}

// openFile returns a mapping of q's file that covers q: one that exists, the whole file, or,
// for what is not a regular file, just the range. There may be most of them.
//
// Preconditions: m.mu held to write.
func (m *Memory) openFile(q mapRequest, key fileKey, st *unix.Stat_t, most int) (*fileMap, error) {
	regular := st.Mode&unix.S_IFMT == unix.S_IFREG
	if regular {
		for _, prot := range [...]int{q.prot, unix.PROT_READ | unix.PROT_WRITE} {
			f := m.files[fileKey{key.dev, key.ino, prot}]
			if f != nil && q.offset+q.size <= uint64(len(f.data)) {
				f.refs++
				return f, nil
			}
		}
	}
	if m.mapped >= most {
		return nil, errMappings
	}
	if regular && m.files[key] == nil {
		whole := (uint64(st.Size) + pageSize - 1) &^ (pageSize - 1)
		if data, err := mmapFile(q.fd, 0, whole, q.prot); err == nil {
			f := &fileMap{key: key, data: data, refs: 1, shared: true}
			if m.files == nil {
				m.files = make(map[fileKey]*fileMap)
			}
			m.files[key] = f
			m.mapped++
			return f, nil
		}
	}
	data, err := mmapFile(q.fd, q.offset, q.size, q.prot)
	if err != nil {
		return nil, err
	}
	m.mapped++
	return &fileMap{key: key, base: q.offset, data: data, refs: 1}, nil
}

func mmapFile(fd int, offset, size uint64, prot int) ([]byte, error) {
	if size > maxMmap || offset > maxMmap {
		return nil, unix.ENOSPC
	}
	return unix.Mmap(fd, int64(offset), int(size), prot, unix.MAP_SHARED)
}

// maxMmap is the largest single mapping asked of the kernel: 8 TiB.
const maxMmap = 8 << 40

// remove takes out the range that is exactly addr, size; ENOENT if there is none. It calls
// atLast, unless nil, when the device no longer uses the range.
func (m *Memory) remove(addr, size uint64, atLast func(*mapping)) error {
	m.mu.Lock()
	i := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].addr >= addr })
	if i == len(m.maps) || m.maps[i].addr != addr || m.maps[i].size != size {
		m.mu.Unlock()
		return unix.ENOENT
	}
	r := m.maps[i]
	m.maps = slices.Delete(m.maps, i, i+1)
	m.mu.Unlock()
	m.drop(r, atLast)
	return nil
}

// removeAll empties the map, a range at a time, so that a watcher that panics costs no more
// than its own notice when removeAll is called again.
func (m *Memory) removeAll() {
	for {
		m.mu.Lock()
		if len(m.maps) == 0 {
			m.mu.Unlock()
			return
		}
		last := len(m.maps) - 1
		r := m.maps[last]
		m.maps[last] = nil
		m.maps = m.maps[:last]
		m.mu.Unlock()
		m.drop(r, nil)
	}
}

func (m *Memory) has(addr, size uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.find(addr)
	return r != nil && r.addr == addr && r.size == size
}

func (m *Memory) empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.maps) == 0
}

// drop ends a range that is in the map no more: watchers first, then the pages. The pages go
// even when a watcher panics.
func (m *Memory) drop(r *mapping, atLast func(*mapping)) {
	defer m.free(r)
	m.notify(r, true)
	if atLast != nil {
		atLast(r)
	}
}

func (m *Memory) free(r *mapping) {
	m.mu.Lock()
	m.log.stop(r)
	m.mu.Unlock()
	m.closeFile(r)
}

func (m *Memory) closeFile(r *mapping) {
	f := r.file
	if f == nil {
		return
	}
	r.data = nil
	m.mu.Lock()
	f.refs--
	last := f.refs == 0
	if last {
		m.mapped-- // by the one thread that makes them
		if f.shared {
			delete(m.files, f.key)
		}
	}
	m.mu.Unlock()
	if last {
		if err := unix.Munmap(f.data); err != nil {
			panic(fmt.Sprintf("vfiouser: munmap of our own mapping: %v", os.NewSyscallError("munmap", err)))
		}
	}
}

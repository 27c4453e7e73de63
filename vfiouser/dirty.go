package vfiouser

import (
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// dirtyLog records which pages of guest memory the device may have written. It is off unless
// the client starts it. Bits are set under the read side of Memory.mu and reported under its
// write side, so a report holds every write of a step that ended before it.
type dirtyLog struct {
	pageSize uint64 // 0 = off
	shift    uint
	bytes    uint64 // of all bitmaps
}

// maxLogBytes bounds the bitmaps of one client: 8 TiB at 4 KiB a page.
const maxLogBytes = 256 << 20

// start begins to log a range; ENOSPC if the bitmaps would grow too large.
//
// Preconditions: Memory.mu held to write.
func (l *dirtyLog) start(r *mapping) error {
	if l.pageSize == 0 || r.prot&unix.PROT_WRITE == 0 || r.data == nil {
		return nil
	}
	n := bitmapBytes(r.size, l.pageSize)
	if n > maxLogBytes-l.bytes {
		return unix.ENOSPC
	}
	l.bytes += n
	r.dirty = make([]uint64, n/8)
	return nil
}

// stop ends the log of a range.
//
// Preconditions: Memory.mu held to write.
func (l *dirtyLog) stop(r *mapping) {
	l.bytes -= uint64(len(r.dirty)) * 8
	r.dirty = nil
}

func (l *dirtyLog) mark(r *mapping, off, n uint64) {
	if n == 0 {
		return
	}
	for p := off >> l.shift; p <= (off+n-1)>>l.shift; p++ {
		atomic.OrUint64(&r.dirty[p/64], 1<<(p%64))
	}
}

// startLog turns logging on, with one bit per pageSize bytes. EINVAL for a page size that is
// not a power of two of 4 KiB or more, or that differs from the one in use.
func (m *Memory) startLog(pageSz uint64) error {
	if pageSz < pageSize || pageSz&(pageSz-1) != 0 {
		return unix.EINVAL
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log.pageSize != 0 {
		if m.log.pageSize != pageSz {
			return unix.EINVAL
		}
		return nil
	}
	m.log = dirtyLog{pageSize: pageSz, shift: uint(bits.TrailingZeros64(pageSz))}
	for _, r := range m.maps {
		if err := m.log.start(r); err != nil {
			m.stopLogLocked()
			return err
		}
	}
	return nil
}

func (m *Memory) stopLog() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLogLocked()
}

func (m *Memory) stopLogLocked() {
	for _, r := range m.maps {
		m.log.stop(r)
	}
	m.log = dirtyLog{}
}

// reportLog writes the bitmap of the mapping that is exactly addr, size to out, a bit per
// pageSz bytes, and clears what it reported. out is zeroed and has bitmapBytes of it.
//
// Errors: EINVAL if logging is off or pageSz is not a power of two; ENOENT if there is no such
// mapping with a descriptor.
func (m *Memory) reportLog(addr, size, pageSz uint64, out []byte) error {
	if pageSz == 0 || pageSz&(pageSz-1) != 0 {
		return unix.EINVAL
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log.pageSize == 0 {
		return unix.EINVAL
	}
	r := m.find(addr)
	if r == nil || r.addr != addr || r.size != size || r.data == nil {
		return unix.ENOENT
	}
	for i, word := range r.dirty {
		r.dirty[i] = 0
		for word != 0 {
			bit := uint64(i*64 + bits.TrailingZeros64(word))
			word &= word - 1
			first := bit << m.log.shift
			last := min(first+m.log.pageSize, r.size) - 1
			for p := first / pageSz; p <= last/pageSz; p++ {
				out[p/8] |= 1 << (p % 8)
			}
		}
	}
	return nil
}

// bitmapBytes is the size of a dirty bitmap: whole u64 words.
func bitmapBytes(size, pageSz uint64) uint64 {
	pages := (size + pageSz - 1) / pageSz
	return (pages + 63) / 64 * 8
}

package vfiouser

import (
	"iter"
	"math/bits"
	"sort"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// dirtyLog records which pages of guest memory the device may have written. It is off unless
// the client starts it.
type dirtyLog struct {
	pageSize uint64 // 0 = off
	shift    uint
	bytes    uint64 // of all bitmaps
}

// dirtyPages has a bit for each page of a range. Bits are set without a lock, after the write
// that they stand for.
type dirtyPages struct {
	shift uint
	words []uint64
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
	r.dirty.Store(&dirtyPages{l.shift, make([]uint64, n/8)})
	return nil
}

// stop ends the log of a range.
//
// Preconditions: Memory.mu held to write.
func (l *dirtyLog) stop(r *mapping) {
	if d := r.dirty.Swap(nil); d != nil {
		l.bytes -= uint64(len(d.words)) * 8
	}
}

func (r *mapping) wrote(off, n uint64) {
	d := r.dirty.Load()
	if d == nil || n == 0 {
		return
	}
	for p := off >> d.shift; p <= (off+n-1)>>d.shift; p++ {
		atomic.OrUint64(&d.words[p/64], 1<<(p%64))
	}
}

// logPageSize is the page size that the log uses for a client's hint: the next power of two, and
// 4 KiB at least.
func logPageSize(hint uint64) uint64 {
	if hint > 1<<62 {
		return 1 << 62
	}
	return max(pageSize, uint64(1)<<bits.Len64(hint-1))
}

// startLog turns logging on, with one bit per pageSz bytes, a power of two. EINVAL if a log with
// another page size is on already.
func (m *Memory) startLog(pageSz uint64) error {
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

// canReport reports whether a report of a range is possible: EINVAL if logging is off, ENOENT if no
// part of the range is in the map with a descriptor.
func (m *Memory) canReport(addr, size uint64) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.log.pageSize == 0 {
		return unix.EINVAL
	}
	for range m.logged(addr, addr+(size-1)) {
		return nil
	}
	return unix.ENOENT
}

// logged yields the mappings with a descriptor that have bytes in first..last.
//
// Preconditions: m.mu held.
func (m *Memory) logged(first, last uint64) iter.Seq[*mapping] {
	return func(yield func(*mapping) bool) {
		i := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].last() >= first })
		for ; i < len(m.maps) && m.maps[i].addr <= last; i++ {
			if r := m.maps[i]; r.data != nil && !yield(r) {
				return
			}
		}
	}
}

// reportLog writes the dirty bitmap of a range of bus addresses to out, a bit per pageSz bytes
// from addr on. The range may cover a part of a mapping, or several. Pages of the log that lie
// wholly in the range become clean; one that lies there in part is reported and stays dirty, for
// the rest of it was not reported. out is zeroed and has bitmapBytes of it; pageSz is a power of two.
//
// Preconditions: canReport.
func (m *Memory) reportLog(addr, size, pageSz uint64, out []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.logged(addr, addr+(size-1)) {
		r.report(addr, size, pageSz, out)
	}
}

func (r *mapping) report(addr, size, pageSz uint64, out []byte) {
	d := r.dirty.Load()
	if d == nil {
		return
	}
	unit := uint64(1) << d.shift
	lo, hi := max(addr, r.addr)-r.addr, min(addr+(size-1), r.last())-r.addr
	for p := lo >> d.shift; p <= hi>>d.shift; p++ {
		word := atomic.LoadUint64(&d.words[p/64]) >> (p % 64)
		if word == 0 {
			p |= 63 // the rest of the word is clean
			continue
		}
		p += uint64(bits.TrailingZeros64(word))
		first := p << d.shift
		if first > hi {
			break
		}
		last := min(first+unit, r.size) - 1
		if first >= lo && last <= hi {
			atomic.AndUint64(&d.words[p/64], ^(1 << (p % 64)))
		}
		from, to := max(first, lo)+r.addr-addr, min(last, hi)+r.addr-addr
		for q := from / pageSz; q <= to/pageSz; q++ {
			out[q/8] |= 1 << (q % 8)
		}
	}
}

// bitmapBytes is the size of a dirty bitmap: whole u64 words.
func bitmapBytes(size, pageSz uint64) uint64 {
	pages := (size + pageSz - 1) / pageSz
	return (pages + 63) / 64 * 8
}

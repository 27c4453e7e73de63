package soft

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// vram is the card's memory: a memory file, mapped once. Pages that were never
// written take no memory. Pages that are elsewhere (see Relocate) are mapped
// in their places, so that an access to mem finds them.
type vram struct {
	file *os.File
	mem  []byte

	mu     sync.Mutex // guards what follows, and one mapping at a time
	pieces []piece    // mappings that mem consists of, by address
	limit  int        // of them
	buf    []byte

	// pages whose emptiness was asked for; accessed without a lock
	looked []atomic.Uint64
}

func newVRAM(size uint64) (*vram, error) {
	fd, err := unix.MemfdCreate("umbra-vram", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a memory file for VRAM: %w", err)
	}
	f := os.NewFile(uintptr(fd), "umbra-vram")
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("size VRAM to %d MiB: %w", size>>20, err)
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("map %d MiB of VRAM: %w", size>>20, err)
	}
	return &vram{file: f, mem: mem, pieces: []piece{{0, backing{f, 0}}}, limit: card.VRAMMappings(), looked: make([]atomic.Uint64, (size/pageSize+63)/64)}, nil
}

// slice returns the n bytes at addr, or nil if they are not all inside.
func (v *vram) slice(addr uint64, n int) []byte {
	if n < 0 || addr > uint64(len(v.mem)) || uint64(n) > uint64(len(v.mem))-addr {
		return nil
	}
	return v.mem[addr : addr+uint64(n) : addr+uint64(n)]
}

// scrub makes the whole memory zero by giving its pages back.
func (v *vram) scrub() error { return v.punch(0, uint64(len(v.mem))) }

// punch makes n bytes at addr zero by freeing their pages, for any backing.
func (v *vram) punch(addr, n uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.renew(addr, n)
	err := punch(v.file, addr, n)
	v.runs(addr, n, func(_, size uint64, at backing) bool {
		if at.file != v.file && err == nil {
			err = punch(at.file, at.off, size)
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("scrub VRAM %#x+%#x: %w", addr, n, err)
	}
	return nil
}

// look finds allocated memory: written parts of the file, for any backing.
func (v *vram) look(addr, n uint64, f func(at uint64, p []byte)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.runs(addr, n, func(addr, n uint64, at backing) bool {
		fd, end := int(at.file.Fd()), int64(at.off+n)
		for from := int64(at.off); from < end; {
			data, err := unix.Seek(fd, from, unix.SEEK_DATA)
			if err != nil || data >= end {
				break // none after it
			}
			hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
			if err != nil {
				hole = end
			}
			from = min(hole, end)
			at := addr + uint64(data) - at.off
			f(at, v.slice(at, int(from-data)))
		}
		return true
	})
}

// empty reports whether page takes no memory, so that all of it is zero; false says nothing.
// It asks the system once for a page whose backing does not change: that costs less than the
// memory that a read allocates, but a repeated reader is faster with reads. It does not wait
// while pages move.
func (v *vram) empty(page uint64) bool {
	if v.looked[page/64].Or(1<<(page%64))>>(page%64)&1 != 0 || !v.mu.TryLock() {
		return false
	}
	defer v.mu.Unlock()
	p := v.pieces[v.pieceAt(page*pageSize)]
	at := p.after(page*pageSize - p.addr)
	data, err := unix.Seek(int(at.file.Fd()), int64(at.off), unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO) || err == nil && uint64(data) >= at.off+pageSize
}

// isNew reports whether a page was not asked for its emptiness since it was relocated or
// cleared.
func (v *vram) isNew(page uint64) bool { return v.looked[page/64].Load()>>(page%64)&1 == 0 }

// renew makes pages new. A concurrent isNew may return either result.
func (v *vram) renew(addr, n uint64) {
	for page, end := addr/pageSize, (addr+n)/pageSize; page < end; {
		if page%64 == 0 && end-page >= 64 {
			v.looked[page/64].Store(0)
			page += 64
			continue
		}
		v.looked[page/64].And(^(1 << (page % 64)))
		page++
	}
}

func punch(f *os.File, off, n uint64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
}

func (v *vram) close() error {
	err := unix.Munmap(v.mem)
	v.mem = nil
	if cerr := v.file.Close(); err == nil {
		err = cerr
	}
	return err
}

const pageSize = shadowpt.SmallPage

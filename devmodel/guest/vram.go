package guest

import "slices"

const pageSize = 4096

// heap allocates ranges of addresses, lowest or highest first. It records which pages were
// never allocated before: on a card that was just reset those are zero.
type heap struct {
	free []extent // sorted, not touching each other
	used map[uint64]bool
}

type extent struct{ addr, size uint64 }

func newHeap(addr, size uint64) *heap {
	return &heap{free: []extent{{addr, size}}, used: map[uint64]bool{}}
}

// alloc takes n bytes, a multiple of the page size, at a multiple of align.
func (h *heap) alloc(n, align uint64, top bool) (addr uint64, fresh, ok bool) {
	for k := range h.free {
		i := k
		if top {
			i = len(h.free) - 1 - k
		}
		e := h.free[i]
		at := (e.addr + align - 1) / align * align
		if top && e.size >= n {
			at = (e.addr + e.size - n) / align * align
		}
		if at < e.addr || at+n > e.addr+e.size {
			continue
		}
		h.cut(i, at, n)
		return at, h.touch(at, n), true
	}
	return 0, false, false
}

func (h *heap) cut(i int, at, n uint64) {
	e := h.free[i]
	var rest []extent
	if at > e.addr {
		rest = append(rest, extent{e.addr, at - e.addr})
	}
	if end := at + n; end < e.addr+e.size {
		rest = append(rest, extent{end, e.addr + e.size - end})
	}
	h.free = slices.Replace(h.free, i, i+1, rest...)
}

func (h *heap) touch(at, n uint64) (fresh bool) {
	fresh = true
	for p := at; p < at+n; p += pageSize {
		fresh = fresh && !h.used[p]
		h.used[p] = true
	}
	return fresh
}

// release gives n bytes at addr back.
func (h *heap) release(addr, n uint64) {
	i, _ := slices.BinarySearchFunc(h.free, addr, func(e extent, a uint64) int {
		if e.addr < a {
			return -1
		}
		return 1
	})
	h.free = slices.Insert(h.free, i, extent{addr, n})
	for i > 0 && h.free[i-1].addr+h.free[i-1].size == h.free[i].addr {
		h.free[i-1].size += h.free[i].size
		h.free = slices.Delete(h.free, i, i+1)
		i--
	}
	for i+1 < len(h.free) && h.free[i].addr+h.free[i].size == h.free[i+1].addr {
		h.free[i].size += h.free[i+1].size
		h.free = slices.Delete(h.free, i+1, i+2)
	}
}

func pages(n uint64) uint64 { return (n + pageSize - 1) &^ (pageSize - 1) }

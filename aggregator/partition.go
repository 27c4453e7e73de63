package aggregator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/shadowpt"
)

const pageSize = shadowpt.SmallPage

// run is a range of the card's memory, in whole pages.
type run struct{ addr, size uint64 }

// partition allocates the card's memory in whole pages, lowest address first.
type partition struct {
	free []run // sorted, never adjacent
}

func newPartition(size uint64) partition { return partition{free: []run{{0, size}}} }

// alloc returns runs of size bytes in total: one run if a free one is large enough, else
// the largest free ones. Each starts at a multiple of align.
func (p *partition) alloc(size, align uint64) ([]run, error) {
	if r, ok := p.take(size, align); ok {
		return []run{r}, nil
	}
	var out []run
	for left := size; left > 0; {
		largest := uint64(0)
		for _, f := range p.free {
			start := (f.addr + align - 1) &^ (align - 1)
			if end := f.addr + f.size; end > start {
				largest = max(largest, (end-start)&^(align-1))
			}
		}
		largest = min(largest, left)
		if largest == 0 {
			p.release(out...)
			return nil, fmt.Errorf("%d MiB of the card's memory requested, %d KiB more than is free", size>>20, left>>10)
		}
		r, _ := p.take(largest, align)
		out = append(out, r)
		left -= largest
	}
	return out, nil
}

// take allocates size bytes from the first free run that has them.
func (p *partition) take(size, align uint64) (run, bool) {
	for i, f := range p.free {
		start := (f.addr + align - 1) &^ (align - 1)
		end := f.addr + f.size
		if start > end || end-start < size {
			continue
		}
		var rest []run
		if start > f.addr {
			rest = append(rest, run{f.addr, start - f.addr})
		}
		if end > start+size {
			rest = append(rest, run{start + size, end - start - size})
		}
		p.free = slices.Replace(p.free, i, i+1, rest...)
		return run{start, size}, true
	}
	return run{}, false
}

// release takes runs back.
func (p *partition) release(runs ...run) {
	for _, r := range runs {
		i, _ := slices.BinarySearchFunc(p.free, r, func(a, b run) int {
			return cmp.Compare(a.addr, b.addr)
		})
		p.free = slices.Insert(p.free, i, r)
		if i+1 < len(p.free) && r.addr+r.size == p.free[i+1].addr {
			p.free[i].size += p.free[i+1].size
			p.free = slices.Delete(p.free, i+1, i+2)
		}
		if i > 0 && p.free[i-1].addr+p.free[i-1].size == p.free[i].addr {
			p.free[i-1].size += p.free[i].size
			p.free = slices.Delete(p.free, i, i+1)
		}
	}
}

// left returns the number of free bytes.
func (p *partition) left() (n uint64) {
	for _, f := range p.free {
		n += f.size
	}
	return n
}

// extents map what a guest sees as VRAM to the card's memory. They do not change while
// the guest exists.
type extents struct {
	list []extent // by guest address
	size uint64
}

type extent struct{ guest, card, size uint64 }

func newExtents(runs []run) extents {
	var e extents
	for _, r := range runs {
		e.list = append(e.list, extent{guest: e.size, card: r.addr, size: r.size})
		e.size += r.size
	}
	return e
}

// at returns the card's address of guest address addr, and how many bytes from there are
// contiguous on the card.
func (e *extents) at(addr uint64) (card, together uint64, ok bool) {
	if addr >= e.size {
		return 0, 0, false
	}
	// Binary search for the last extent that begins at or before addr. This runs for each
	// page-table entry, and most guests have one extent.
	i, end := 0, len(e.list)
	for end-i > 1 {
		if half := (i + end) / 2; e.list[half].guest <= addr {
			i = half
		} else {
			end = half
		}
	}
	x := &e.list[i]
	return x.card + addr - x.guest, x.guest + x.size - addr, true
}

// translate returns the card's address of n bytes at a guest address, if they are
// contiguous on the card.
func (e *extents) translate(addr, n uint64) (card uint64, ok bool) {
	card, together, ok := e.at(addr)
	return card, ok && n <= together
}

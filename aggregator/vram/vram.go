// Package vram divides a card's memory: an [Allocator] hands out runs of whole pages, and
// [Extents] map what one guest sees as its memory to the runs that it got.
//
// The package has no locks or goroutines. The owner of an Allocator locks it; Extents do
// not change.
package vram

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// PageSize is the unit of allocation in bytes.
const PageSize = shadowpt.SmallPage

// WholePages rounds n bytes up.
func WholePages(n uint64) uint64 { return (n + PageSize - 1) &^ (PageSize - 1) }

// Allocator allocates the card's memory in whole pages, lowest address first. The zero
// Allocator has none; Release adds some.
type Allocator struct {
	free []card.Run // sorted, never adjacent
}

// Alloc returns runs of size bytes in total: one run if a free one is large enough, else
// the largest free ones. Each starts at a multiple of align.
func (a *Allocator) Alloc(size, align uint64) ([]card.Run, error) {
	if r, ok := a.Take(size, align); ok {
		return []card.Run{r}, nil
	}
	var out []card.Run
	for left := size; left > 0; {
		largest := uint64(0)
		for _, f := range a.free {
			start := (f.Addr + align - 1) &^ (align - 1)
			if end := f.Addr + f.Size; end > start {
				largest = max(largest, (end-start)&^(align-1))
			}
		}
		largest = min(largest, left)
		if largest == 0 {
			a.Release(out...)
			return nil, fmt.Errorf("%d MiB of the card's memory requested, %d KiB more than is free", size>>20, left>>10)
		}
		r, _ := a.Take(largest, align)
		out = append(out, r)
		left -= largest
	}
	return out, nil
}

// Take allocates size bytes from the first free run that has them.
func (a *Allocator) Take(size, align uint64) (card.Run, bool) {
	for i, f := range a.free {
		start := (f.Addr + align - 1) &^ (align - 1)
		end := f.Addr + f.Size
		if start > end || end-start < size {
			continue
		}
		var rest []card.Run
		if start > f.Addr {
			rest = append(rest, card.Run{Addr: f.Addr, Size: start - f.Addr})
		}
		if end > start+size {
			rest = append(rest, card.Run{Addr: start + size, Size: end - start - size})
		}
		a.free = slices.Replace(a.free, i, i+1, rest...)
		return card.Run{Addr: start, Size: size}, true
	}
	return card.Run{}, false
}

// Release takes runs back.
func (a *Allocator) Release(runs ...card.Run) {
	for _, r := range runs {
		i, _ := slices.BinarySearchFunc(a.free, r, func(x, y card.Run) int { return cmp.Compare(x.Addr, y.Addr) })
		a.free = slices.Insert(a.free, i, r)
		if i+1 < len(a.free) && r.Addr+r.Size == a.free[i+1].Addr {
			a.free[i].Size += a.free[i+1].Size
			a.free = slices.Delete(a.free, i+1, i+2)
		}
		if i > 0 && a.free[i-1].Addr+a.free[i-1].Size == a.free[i].Addr {
			a.free[i-1].Size += a.free[i].Size
			a.free = slices.Delete(a.free, i, i+1)
		}
	}
}

// Left returns the number of free bytes.
func (a *Allocator) Left() (n uint64) {
	for _, f := range a.free {
		n += f.Size
	}
	return n
}

// Extents map what a guest sees as VRAM to the card's memory. They do not change while
// the guest exists.
type Extents struct {
	list []Extent // by guest address
	size uint64
}

// Extent is Size bytes of a guest: at address Guest for the guest, at address Card in the
// card's memory.
type Extent struct{ Guest, Card, Size uint64 }

// NewExtents lays out the runs one after the other.
func NewExtents(runs []card.Run) Extents {
	var e Extents
	for _, r := range runs {
		e.list = append(e.list, Extent{Guest: e.size, Card: r.Addr, Size: r.Size})
		e.size += r.Size
	}
	return e
}

// Size returns the size of the guest's memory in bytes.
func (e *Extents) Size() uint64 { return e.size }

// List returns the extents by guest address. The caller does not change them.
func (e *Extents) List() []Extent { return e.list }

// At returns the card's address of guest address addr, and how many bytes from there are
// contiguous on the card.
func (e *Extents) At(addr uint64) (card, together uint64, ok bool) {
	if addr >= e.size {
		return 0, 0, false
	}
	// Binary search for the last extent that begins at or before addr. This runs for each
	// page-table entry, and most guests have one extent.
	i, end := 0, len(e.list)
	for end-i > 1 {
		if half := (i + end) / 2; e.list[half].Guest <= addr {
			i = half
		} else {
			end = half
		}
	}
	x := &e.list[i]
	return x.Card + addr - x.Guest, x.Guest + x.Size - addr, true
}

// Translate returns the card's address of n bytes at a guest address, if they are
// contiguous on the card.
func (e *Extents) Translate(addr, n uint64) (card uint64, ok bool) {
	card, together, ok := e.At(addr)
	return card, ok && n <= together
}

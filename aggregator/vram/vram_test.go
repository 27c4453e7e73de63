package vram

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// The allocator is held against a bitmap.
func TestAllocator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 256
		p := Allocator{}
		p.Release(card.Run{Size: pages * PageSize})
		var used [pages]bool
		var held [][]card.Run
		mark := func(list []card.Run, to bool) {
			for _, r := range list {
				for i := r.Addr / PageSize; i < (r.Addr+r.Size)/PageSize; i++ {
					require.NotEqual(t, to, used[i], "page %d", i)
					used[i] = to
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				mark(held[i], false)
				p.Release(held[i]...)
				held = append(held[:i], held[i+1:]...)
				continue
			}
			align := uint64(PageSize) << rapid.IntRange(0, 3).Draw(t, "align")
			size := align * uint64(rapid.IntRange(1, 24).Draw(t, "size"))
			list, err := p.Alloc(size, align)
			if err != nil {
				continue
			}
			sum := uint64(0)
			for _, r := range list {
				require.Zero(t, r.Addr%align)
				sum += r.Size
			}
			require.Equal(t, size, sum)
			mark(list, true)
			held = append(held, list)
		}
		left := uint64(0)
		for _, u := range used {
			if !u {
				left += PageSize
			}
		}
		free := uint64(0)
		for i, f := range p.free {
			free += f.Size
			if i > 0 {
				require.Greater(t, f.Addr, p.free[i-1].Addr+p.free[i-1].Size, "runs touch")
			}
		}
		require.Equal(t, left, free)
	})
}

// Each address of a guest's is in the extent that has it.
func TestExtents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []card.Run
		for i := range rapid.IntRange(1, 12).Draw(t, "extents") {
			runs = append(runs, card.Run{Addr: uint64(i) << 20, Size: PageSize * uint64(rapid.IntRange(1, 5).Draw(t, "pages"))})
		}
		e := NewExtents(runs)
		begin := uint64(0)
		for _, r := range runs {
			for _, in := range []uint64{0, 1, r.Size / 2, r.Size - 1} {
				card, together, ok := e.At(begin + in)
				require.True(t, ok)
				require.Equal(t, r.Addr+in, card)
				require.Equal(t, r.Size-in, together)
			}
			begin += r.Size
		}
		_, _, ok := e.At(begin)
		require.False(t, ok)
	})
}

package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The allocator is held against a bitmap.
func TestPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 256
		p := newPartition(pages * pageSize)
		var used [pages]bool
		var held [][]run
		mark := func(list []run, to bool) {
			for _, r := range list {
				for i := r.addr / pageSize; i < (r.addr+r.size)/pageSize; i++ {
					require.NotEqual(t, to, used[i], "page %d", i)
					used[i] = to
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				mark(held[i], false)
				p.release(held[i]...)
				held = append(held[:i], held[i+1:]...)
				continue
			}
			align := uint64(pageSize) << rapid.IntRange(0, 3).Draw(t, "align")
			size := align * uint64(rapid.IntRange(1, 24).Draw(t, "size"))
			list, err := p.alloc(size, align)
			if err != nil {
				continue
			}
			sum := uint64(0)
			for _, r := range list {
				require.Zero(t, r.addr%align)
				sum += r.size
			}
			require.Equal(t, size, sum)
			mark(list, true)
			held = append(held, list)
		}
		left := uint64(0)
		for _, u := range used {
			if !u {
				left += pageSize
			}
		}
		free := uint64(0)
		for i, f := range p.free {
			free += f.size
			if i > 0 {
				require.Greater(t, f.addr, p.free[i-1].addr+p.free[i-1].size, "runs touch")
			}
		}
		require.Equal(t, left, free)
	})
}

// Each address of a guest's is in the extent that has it.
func TestExtents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []run
		for i := range rapid.IntRange(1, 12).Draw(t, "extents") {
			runs = append(runs, run{uint64(i) << 20, pageSize * uint64(rapid.IntRange(1, 5).Draw(t, "pages"))})
		}
		e := newExtents(runs)
		begin := uint64(0)
		for _, r := range runs {
			for _, in := range []uint64{0, 1, r.size / 2, r.size - 1} {
				card, together, ok := e.at(begin + in)
				require.True(t, ok)
				require.Equal(t, r.addr+in, card)
				require.Equal(t, r.size-in, together)
			}
			begin += r.size
		}
		_, _, ok := e.at(begin)
		require.False(t, ok)
	})
}

package surface

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type place struct{ x, y, z uint32 }

// walk is the slow twin of Offset: it goes through memory in address order and notes
// which place each byte belongs to, level by level, with no address arithmetic.
func walk(l Layout) map[place]uint64 {
	out := map[place]uint64{}
	var at uint64
	for z0 := uint32(0); z0 < l.Depth; z0 += 1 << l.BlockD {
		for y0 := uint32(0); y0 < l.Height; y0 += 8 << l.BlockH {
			for x0 := uint32(0); x0 < l.Width; x0 += 64 << l.BlockW {
				for z := uint32(0); z < 1<<l.BlockD; z++ {
					for y := uint32(0); y < 1<<l.BlockH; y++ {
						for x := uint32(0); x < 1<<l.BlockW; x++ {
							walkGOB(out, place{x0 + x*64, y0 + y*8, z0 + z}, &at)
						}
					}
				}
			}
		}
	}
	return out
}

// A GOB is two halves of 32 bytes; each four pairs of lines; each two columns of
// 16 bytes; each two lines; each 16 bytes.
func walkGOB(out map[place]uint64, p place, at *uint64) {
	for half := uint32(0); half < 2; half++ {
		for pair := uint32(0); pair < 4; pair++ {
			for column := uint32(0); column < 2; column++ {
				for line := uint32(0); line < 2; line++ {
					for b := uint32(0); b < 16; b++ {
						out[place{p.x + half*32 + column*16 + b, p.y + pair*2 + line, p.z}] = *at
						*at++
					}
				}
			}
		}
	}
}

func layouts(t *rapid.T) Layout {
	return Layout{
		Width:  rapid.Uint32Range(1, 300).Draw(t, "width"),
		Height: rapid.Uint32Range(1, 70).Draw(t, "height"),
		Depth:  rapid.Uint32Range(1, 5).Draw(t, "depth"),
		BlockW: rapid.Uint32Range(0, 1).Draw(t, "blockW"),
		BlockH: rapid.Uint32Range(0, 5).Draw(t, "blockH"),
		BlockD: rapid.Uint32Range(0, 2).Draw(t, "blockD"),
	}
}

func TestOffsetAgainstWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layouts(t)
		slow := walk(l)
		require.EqualValues(t, len(slow), l.Size())
		for p, at := range slow {
			if got := l.Offset(p.x, p.y, p.z); got != at {
				require.Equal(t, at, got, "%+v in %+v", p, l)
			}
		}
	})
}

// Known places, worked out by hand from the description.
func TestKnownPlaces(t *testing.T) {
	l := Layout{Width: 128, Height: 32, Depth: 1, BlockH: 1}
	for _, c := range []struct {
		p  place
		at uint64
	}{
		{place{0, 0, 0}, 0},
		{place{15, 0, 0}, 15},
		{place{16, 0, 0}, 32},
		{place{0, 1, 0}, 16},
		{place{0, 2, 0}, 64},
		{place{32, 0, 0}, 256},
		{place{63, 7, 0}, 511},
		{place{0, 8, 0}, 512},
		{place{64, 0, 0}, 1024},
		{place{0, 16, 0}, 2048},
	} {
		require.Equal(t, c.at, l.Offset(c.p.x, c.p.y, c.p.z), "%+v", c.p)
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, Layout{Width: 1, Height: 1, Depth: 1}.Validate())
	require.ErrorContains(t, Layout{Width: 1, Height: 0, Depth: 1}.Validate(), "no side")
	require.ErrorContains(t, Layout{Width: 1, Height: 1, Depth: 1, BlockH: 6}.Validate(), "GOBs")
}

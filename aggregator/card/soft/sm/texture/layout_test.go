package texture

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// walk is the slow model of a layout: it goes through memory byte by byte and says what lies
// there, sector by sector of 16 bytes.
func walk(im *Image, visit func(offset uint64, level int, x, y, z, layer uint64)) {
	var offset uint64
	for layer := range im.Layers {
		high, deep := im.High, im.Deep
		first := uint64(0)
		for level := 0; level <= int(im.Last); level++ {
			width, height, depth := im.at(level, 0)*im.Texel, im.at(level, 1), im.at(level, 2)
			for high > 0 && 8<<high/2 >= height {
				high--
			}
			for deep > 0 && 1<<deep/2 >= depth {
				deep--
			}
			if level == 0 {
				first = 512 << (high + deep)
			}
			for bz := uint64(0); bz < depth; bz += 1 << deep {
				for by := uint64(0); by < height; by += 8 << high {
					for bx := uint64(0); bx < width; bx += 64 {
						for z := range uint64(1) << deep {
							for y := range uint64(1) << high {
								for sector := range uint64(32) {
									half, pair, quarter, line := sector>>4, sector>>2&3, sector>>1&1, sector&1
									visit(offset, level, bx+half*32+quarter*16, by+y*8+pair*2+line, bz+z, layer)
									offset += 16
								}
							}
						}
					}
				}
			}
		}
		for offset%first != 0 {
			offset += 512
		}
	}
}

// TestAddresses: every texel is where the slow model finds it.
func TestAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string, most int) uint64 { return uint64(rapid.IntRange(1, most).Draw(t, name)) }
		im := Image{
			Address: uint64(rapid.Uint32().Draw(t, "address")) << 8, Texel: rapid.SampledFrom([]uint64{1, 2, 4, 8, 16}).Draw(t, "bytes"),
			Size: [3]uint64{size("width", 40), size("height", 40), 1}, Layers: 1,
			High: size("high", 4) - 1, Last: size("levels", 5) - 1,
		}
		if rapid.Bool().Draw(t, "volume") {
			im.Size[2], im.Deep = size("depth", 9), size("deep", 4)-1
		} else {
			im.Layers = size("layers", 3)
		}
		im.lay()
		seen := 0
		walk(&im, func(offset uint64, level int, x, y, z, layer uint64) {
			if y >= im.at(level, 1) || z >= im.at(level, 2) {
				return
			}
			for at := x; at < x+16 && at < im.at(level, 0)*im.Texel; at += im.Texel {
				want := (im.Address + offset + at - x) & addressMask
				if got := im.At(level, at/im.Texel, y, z, layer); got != want {
					require.Equal(t, want, got, "level %d texel %d %d %d layer %d", level, at/im.Texel, y, z, layer)
				}
				seen++
			}
		})
		want := uint64(0)
		for level := range im.Last + 1 {
			want += im.at(int(level), 0) * im.at(int(level), 1) * im.at(int(level), 2) * im.Layers
		}
		require.EqualValues(t, want, seen)
	})
}

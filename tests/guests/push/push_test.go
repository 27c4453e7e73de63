package push

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHeaders(t *testing.T) {
	var b Buffer
	b.Inc(2, M2MFLaunch, 0x110)
	b.NonInc(2, M2MFInlineData, 1, 2, 3)
	b.IncOnce(1, 0x238c, 4, 5)
	b.Imm(0, 0x1234, 0x1fff)
	b.Inc(7, HostNop)
	require.Equal(t, []uint32{
		0x200140c0, 0x110,
		0x600340c1, 1, 2, 3,
		0xa00228e3, 4, 5,
		0x9fff048d,
		0x2000e002,
	}, b.Words)
}

func TestHeaderRefuses(t *testing.T) {
	var b Buffer
	for name, f := range map[string]func(){
		"subchannel": func() { b.Inc(8, 0, 1) },
		"method":     func() { b.Inc(0, 0x4000, 1) },
		"unaligned":  func() { b.Inc(0, 2, 1) },
		"count":      func() { b.Inc(0, 0, make([]uint32, 8192)...) },
		"immediate":  func() { b.Imm(0, 0, 8192) },
	} {
		require.Panics(t, f, name)
	}
}

// The shapes of what nouveau and Mesa send.
func TestKernelShapes(t *testing.T) {
	var b Buffer
	b.SetObject(4, ClassCE0, EngineCE0)
	require.Equal(t, []uint32{0x20018000, 0x000490b5}, b.Words)

	b.Reset()
	b.Semaphore(0, 0x12_3456_7890, 7, SemRelease|SemOneWord)
	require.Equal(t, []uint32{0x20040004, 0x12, 0x34567890, 7, 0x01000002}, b.Words)

	b.Reset()
	b.CECopy(4, Surface{VA: 0x1_0000_0000, Pitch: 4096}, Surface{VA: 0x2000, Pitch: 4096}, 4096, 3, 0, nil)
	require.Equal(t, []uint32{
		0x200880c3, 1, 0, 0, 0x2000, 4096, 4096, 4096, 3,
		0x200180c0, 0x110,
	}, b.Words)

	b.Reset()
	b.M2MFCopy(2, Surface{VA: 0x1_0000_1000, Pitch: 4096}, Surface{VA: 0x3000, Pitch: 8192}, 4096, 5, LaunchFlush)
	require.Equal(t, []uint32{
		0x2002408e, 0, 0x3000,
		0x200640c3, 1, 0x1000, 4096, 8192, 4096, 5,
		0x200140c0, 0x1110,
	}, b.Words)
}

func TestTiledSides(t *testing.T) {
	var b Buffer
	tile := &Tiling{Width: 100, Height: 50, Depth: 3, BlockH: 2, BlockD: 1, X: 8, Y: 9, Z: 2}
	b.M2MFCopy(2, Surface{VA: 0x1000, Tiling: tile}, Surface{VA: 0x2000, Pitch: 64}, 16, 2, 0)
	d := decode(t, b.Words)
	require.EqualValues(t, 0x120, d[M2MFSrcBlockSize])
	require.EqualValues(t, 2, d[M2MFSrcLayer])
	require.EqualValues(t, 8, d[M2MFSrcOriginX])
	require.EqualValues(t, 9, d[M2MFSrcOriginY])
	require.EqualValues(t, LaunchDstPitch, d[M2MFLaunch])

	b.Reset()
	b.CECopy(4, Surface{VA: 0x1000, Pitch: 64}, Surface{VA: 0x2000, Tiling: tile}, 16, 2, CEExecFormat, &CEQuery{VA: 0x9000, Counter: 5, Short: true})
	d = decode(t, b.Words)
	require.EqualValues(t, 0x120, d[CEDstTileMode])
	require.EqualValues(t, 2, d[0x230])
	require.EqualValues(t, 8, d[0x234])
	require.EqualValues(t, 9, d[0x238])
	require.EqualValues(t, 0x3011, d[CEExec])
	require.EqualValues(t, 5, d[0x340])
}

func TestCEFormatWord(t *testing.T) {
	require.EqualValues(t, 0x03303210, CEFormatWord(1, 4, 0, 1, 2, 3))
	require.EqualValues(t, 0x01030045, CEFormatWord(4, 1, SwzConst1, SwzConst0))
}

// decode plays words back into a map of the last value per method.
func decode(t require.TestingT, words []uint32) map[Method]uint32 {
	out := map[Method]uint32{}
	for i := 0; i < len(words); {
		h := words[i]
		i++
		m, n := Method(h&0xfff)*4, int(h>>16&0x1fff)
		switch h >> 29 {
		case opImmediate:
			out[m] = uint32(n)
			continue
		case opIncreasing, opNonIncreasing, opIncreaseOnce:
		default:
			require.FailNow(t, "unknown header")
		}
		for k := 0; k < n; k++ {
			at := m
			if h>>29 == opIncreasing {
				at = m + Method(4*k)
			} else if h>>29 == opIncreaseOnce && k > 0 {
				at = m + 4
			}
			out[at] = words[i]
			i++
		}
	}
	return out
}

// Whatever is pushed, playing it back gives the last value written to each method.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Buffer
		want := map[Method]uint32{}
		for range rapid.IntRange(1, 20).Draw(t, "packets") {
			m := Method(rapid.IntRange(0, 0x3f00/4).Draw(t, "method") * 4)
			data := rapid.SliceOfN(rapid.Uint32(), 1, 12).Draw(t, "data")
			sc := Subchan(rapid.IntRange(0, 7).Draw(t, "subchannel"))
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				b.Inc(sc, m, data...)
				for k, v := range data {
					want[m+Method(4*k)] = v
				}
			case 1:
				b.NonInc(sc, m, data...)
				want[m] = data[len(data)-1]
			case 2:
				b.IncOnce(sc, m, data...)
				want[m] = data[0]
				if len(data) > 1 {
					want[m+4] = data[len(data)-1]
				}
			case 3:
				b.Imm(sc, m, data[0]&MaxImmediate)
				want[m] = data[0] & MaxImmediate
			}
		}
		require.Equal(t, want, decode(t, b.Words))
	})
}

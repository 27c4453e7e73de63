package texture

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// wrapped is the GL specification's table of texel indices.
func wrapped(mode uint32, i, n int) int {
	mirror := func(a int) int {
		if a >= 0 {
			return a
		}
		return -(1 + a)
	}
	clamp := func(a, low, high int) int { return max(low, min(a, high)) }
	mod := func(a, n int) int { return a - n*int(math.Floor(float64(a)/float64(n))) }
	switch mode {
	case 0:
		return mod(i, n)
	case 1:
		return n - 1 - mirror(mod(i, 2*n)-n)
	case 2:
		return clamp(i, 0, n-1)
	case 3, 4:
		return clamp(i, -1, n)
	case 5:
		return clamp(mirror(i), 0, n-1)
	}
	return clamp(mirror(i), 0, n) // 6, 7
}

// TestFilters: nearest and linear filters give what the formulas of the GL specification do.
func TestFilters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig()
		w, h := rapid.IntRange(1, 5).Draw(t, "width"), rapid.IntRange(1, 5).Draw(t, "height")
		linear := rapid.Bool().Draw(t, "linear")
		if linear {
			r.sampler.Mag = filterLinear
		}
		r.header.Width, r.header.Height, r.header.Normalized = uint32(w), uint32(h), 0
		r.sampler.Wrap = [3]uint32{rapid.Uint32Range(0, 7).Draw(t, "u"), rapid.Uint32Range(0, 7).Draw(t, "v")}
		r.sampler.Border = floats(-7, 1, 2, 3)
		value := func(x, y int) float64 { return float64(3*x*x + 11*y + 1) }
		r.fill(func(_ int, x, y, _, _ uint64) float32 { return float32(value(int(x), int(y))) })
		// Coordinates are multiples of 1/256: as exact as the filter's weights.
		u := float64(rapid.IntRange(-3*256, 8*256).Draw(t, "x")) / 256
		v := float64(rapid.IntRange(-3*256, 8*256).Draw(t, "y")) / 256
		texel := func(i, j int) float64 {
			i, j = wrapped(r.sampler.Wrap[0], i, w), wrapped(r.sampler.Wrap[1], j, h)
			if i < 0 || i >= w || j < 0 || j >= h {
				return -7
			}
			return value(i, j)
		}
		got := r.get(t, fmt.Sprintf(texZero, "t2d", "$r4:$r5"), floats(u, v), [4]uint32{})
		u, i := clamped(r.sampler.Wrap[0], u, w)
		v, j := clamped(r.sampler.Wrap[1], v, h)
		want := texel(i, j)
		if linear {
			i, j := math.Floor(u-0.5), math.Floor(v-0.5)
			a, b := u-0.5-i, v-0.5-j
			x, y := int(i), int(j)
			want = (1-b)*((1-a)*texel(x, y)+a*texel(x+1, y)) + b*((1-a)*texel(x, y+1)+a*texel(x+1, y+1))
		}
		require.EqualValues(t, float32(want), first(got))
		if !linear && want == -7 {
			require.Equal(t, colour(r.sampler.Border), got, "the border's components have no sources")
		}
	})
}

// clamped clamps a coordinate if the mode does. It also returns the nearest texel.
func clamped(mode uint32, x float64, n int) (float64, int) {
	if mode == 7 {
		x = math.Abs(x)
	}
	if mode != 4 && mode != 7 {
		return x, int(math.Floor(x))
	}
	x = max(0, min(x, float64(n)))
	return x, min(int(math.Floor(x)), n-1)
}

// TestLevels: the level of detail picks levels, and mixes them. Each level of the texture has its
// number in each texel.
func TestLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig()
		r.header.Width, r.header.Height, r.header.LastLevel = 16, 16, 4
		r.header.MinLevel, r.header.MaxLevel = uint32(rapid.IntRange(0, 4).Draw(t, "first")), uint32(rapid.IntRange(0, 4).Draw(t, "last"))
		low, high := float64(r.header.MinLevel), float64(max(r.header.MinLevel, r.header.MaxLevel))
		r.fill(func(level int, _, _, _, _ uint64) float32 { return float32(level) })
		bias := rapid.IntRange(-512, 512).Draw(t, "bias")
		r.sampler.Bias = uint32(bias) & 0x1fff
		r.sampler.MinLevel = uint32(rapid.IntRange(0, 256).Draw(t, "least"))
		r.sampler.Mip = rapid.SampledFrom([]uint32{mipNone, mipPoint, mipLinear}).Draw(t, "mip")
		lod := float64(rapid.IntRange(-1000, 2000).Draw(t, "lod")) / 256
		want := max(float64(r.sampler.MinLevel)/256, lod+float64(bias)/256)
		switch r.sampler.Mip {
		case mipNone:
			want = 0
		case mipPoint:
			want = math.Ceil(want+0.5) - 1
		}
		want = max(low, min(low+want, high))
		require.EqualValues(t, float32(want), first(r.get(t, fmt.Sprintf(texLod, "t2d", "$r4:$r5"), floats(0.3, 0.6), floats(lod))))
	})
}

// TestTargets: each type of texture takes its coordinates, and its layer.
func TestTargets(t *testing.T) {
	tests := []struct {
		target, width, height, depth uint32
		text                         string
		at                           [4]uint32
		want                         float64 // x + 10y + 100z + 1000 layer
	}{
		{oneD, 8, 1, 1, "t1d $t0 $s0 $r4", floats(0.4), 3},
		{oneDArray, 8, 1, 3, "a1d $t0 $s0 $r4:$r5", [4]uint32{2, floats(0.4)[0]}, 2003},
		{twoDArray, 8, 4, 3, "a2d $t0 $s0 $r4:$r5:$r6", [4]uint32{1, floats(0.4)[0], floats(0.9)[0]}, 1033},
		{twoDArray, 8, 4, 3, "a2d $t0 $s0 $r4:$r5:$r6", [4]uint32{99, floats(0.4)[0], floats(0.9)[0]}, 2033},
		{threeD, 8, 4, 8, "t3d $t0 $s0 $r4:$r5:$r6", floats(0.4, 0.9, 0.99), 733},
		{cube, 8, 8, 1, "tcube $t0 $s0 $r4:$r5:$r6", floats(1, -0.9, 0.9), 70},                         // +X: S is -Z, T is -Y
		{cube, 8, 8, 1, "tcube $t0 $s0 $r4:$r5:$r6", floats(-0.9, -1, 0.9), 3000},                      // -Y: S is X, T is -Z
		{cube, 8, 8, 1, "tcube $t0 $s0 $r4:$r5:$r6", floats(0.9, 0.9, -1), 5000},                       // -Z: S is -X, T is -Y
		{cubeArray, 8, 8, 2, "acube $t0 $s0 $r4:$r5:$r6:$r7", [4]uint32{1, 0, 0, floats(1)[0]}, 10044}, // +Z
	}
	for _, test := range tests {
		r := newRig()
		r.header.Target, r.header.Width, r.header.Height, r.header.Depth = test.target, test.width, test.height, test.depth
		r.fill(func(_ int, x, y, z, layer uint64) float32 { return float32(x + 10*y + 100*z + 1000*layer) })
		got := r.get(t, "tex t lzero all dfp $r0:$r1:$r2:$r3 "+test.text+" ()", test.at, [4]uint32{})
		require.Equal(t, colour(floats(test.want, 0, 0, 1)), got, test.text)
	}
}

// TestCubeEdges: a filter that crosses the edge of a cube's face mixes two faces, if it may.
func TestCubeEdges(t *testing.T) {
	r := newRig()
	r.header.Target, r.sampler.Mag = cube, filterLinear
	r.fill(func(_ int, _, _, _, layer uint64) float32 { return float32(layer) })
	at := floats(1, 0, -1) // between +X and -Z
	ask := fmt.Sprintf(texZero, "tcube", "$r4:$r5:$r6")
	require.EqualValues(t, 0, first(r.get(t, ask, at, [4]uint32{})))
	r.bound.Seamless = true
	require.EqualValues(t, 2.5, first(r.get(t, ask, at, [4]uint32{})))
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		f, i := rapid.IntRange(0, 5).Draw(t, "face"), rapid.IntRange(0, n-1).Draw(t, "i")
		beyond := rapid.SampledFrom([][2]int{{-1, i}, {n, i}, {i, -1}, {i, n}}).Draw(t, "texel")
		x, y := beyond[0], beyond[1]
		f2, x2, y2 := across(f, x, y, n)
		require.NotEqual(t, f/2, f2/2, "a neighbour has another axis")
		require.True(t, x2 == 0 || x2 == n-1 || y2 == 0 || y2 == n-1, "it begins at its edge")
		// One step back leads to the texel at the edge.
		for _, step := range [][2]int{{-1, y2}, {n, y2}, {x2, -1}, {x2, n}} {
			if f3, x3, y3 := across(f2, step[0], step[1], n); f3 == f && x3 == edge(x, n) && y3 == edge(y, n) {
				return
			}
		}
		require.Fail(t, "no way back")
	})
}

// TestInstructions: operands that modifiers ask for, and the other instructions.
func TestInstructions(t *testing.T) {
	r := newRig()
	r.header.LastLevel, r.header.MaxLevel = 3, 3
	r.fill(func(level int, x, y, _, _ uint64) float32 { return float32(x+10*y) + float32(100*level) })
	get := func(text string, a, b [4]uint32) float64 { return first(r.get(t, text, a, b)) }
	at := floats(0.5, 0.5) // texel 4, 4
	require.EqualValues(t, 53, get("tex t lzero off all dfp $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8", at, [4]uint32{0x1f}))
	r.sampler.Mip = mipPoint
	require.EqualValues(t, 111+20, get("tex t llod off all dfp $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8:$r9", at, [4]uint32{floats(1)[0], 0x1f}))
	require.EqualValues(t, 222-100*0-11+0, get("texgrad t all $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8:$r9:$r10:$r11", at, floats(0.5, 0, 0, 0.25)))
	require.EqualValues(t, 122, get("texfetch t llod all $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8", [4]uint32{2, 2}, [4]uint32{1}))
	require.EqualValues(t, 21, get("texfetch t lzero off all $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8", [4]uint32{2, 2}, [4]uint32{0xf}))
	require.Equal(t, colour{}, r.get(t, "texfetch t llod all $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8", [4]uint32{4, 0}, [4]uint32{1}))
	require.Equal(t, colour(floats(43, 44, 34, 33)), r.get(t, "texgather t all dfp r $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 ()", at, [4]uint32{}))
	require.Equal(t, colour(floats(33, 44, 22, 11)), r.get(t, "texgather t off8 all dfp r $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8:$r9", at, [4]uint32{0x01010000, 0xfefeffff}))
	require.Equal(t, colour{4, 4, 1, 4}, r.get(t, "texquery t all $r0:$r1:$r2:$r3 tdims $t0 $s0 $r4 0x0", [4]uint32{1}, [4]uint32{}))
	r.bound.HeaderSlots[5], r.bound.SamplerSlots[6] = sm.Slot{Bound: true}, sm.Slot{Bound: true}
	require.EqualValues(t, 44, get("tex t lzero all dfp $r0:$r1:$r2:$r3 t2d ind $t0 $s0 $r4:$r5:$r6 ()", [4]uint32{5<<23 | 6<<16, at[0], at[1]}, [4]uint32{}))

	// A depth is compared before it is filtered.
	r.sampler.Compare, r.sampler.Func, r.sampler.Mag = 1, 1, filterLinear
	require.EqualValues(t, 0.5, get("tex t lzero shadow all dfp $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 $r8", at, floats(40)))

	// The level of detail of a quad whose texels are 2 apart.
	words, err := isa.Assemble("texquerylod t all dfp $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5")
	require.NoError(t, err)
	in, err := isa.Decode(words[0], 0)
	require.NoError(t, err)
	q := interp.Texels{Inst: &in, Lanes: 15}
	for lane := range 4 {
		q.A[0][lane], q.A[1][lane] = floats(float64(lane&1) * 0.25)[0], floats(float64(lane>>1) * 0.25)[0]
	}
	require.NoError(t, (&Unit{Memory: &r.mem, Bound: &r.bound}).Texture(&q))
	require.Equal(t, [2]uint32{256, 256}, [2]uint32{q.Out[0][3], q.Out[1][3]})
}

// TestMissing: what is not implemented is named.
func TestMissing(t *testing.T) {
	for want, change := range map[string]func(r *rig){
		"textures of format DXT1":             func(r *rig) { r.header.Format = 0x24 },
		"multisampled textures (mode 2)":      func(r *rig) { r.header.Samples = 2 },
		"texture 0, which is not bound":       func(r *rig) { r.bound.HeaderSlots[0].Bound = false },
		"sampler 0, which is not bound":       func(r *rig) { r.bound.SamplerSlots[0].Bound = false },
		"texture descriptor 9: the last is 0": func(r *rig) { r.bound.HeaderSlots[0].Index = 9 },
		"target 2 on a texture of type 3":     func(r *rig) { r.header.Target = cube },
		"data type 5":                         func(r *rig) { r.header.Types[0] = 5 },
		"pitched textures of several layers":  func(r *rig) { r.header.Pitched, r.header.LastLevel = 1, 1 },
		"not mapped":                          func(r *rig) { r.header.High = 1 },
	} {
		r := newRig()
		change(r)
		_, err := r.ask(t, fmt.Sprintf(texZero, "t2d", "$r4:$r5"), floats(0.5, 0.5), [4]uint32{})
		require.ErrorContains(t, err, want)
	}
}

// TestMissingTargets: instructions that are not implemented for a target are named, the others run.
func TestMissingTargets(t *testing.T) {
	const derivatives, dimensions, fetch = "derivatives of three coordinates", "a gather from a texture of", "a fetch from a cube"
	for _, test := range []struct {
		target                  uint32
		name, at                string
		grad, gathered, fetched string
	}{
		{oneD, "t1d", "$r4", "", dimensions, ""},
		{oneDArray, "a1d", "$r4:$r5", "", dimensions, ""},
		{twoD, "t2d", "$r4:$r5", "", "", ""},
		{twoDArray, "a2d", "$r4:$r5:$r6", "", "", ""},
		{threeD, "t3d", "$r4:$r5:$r6", derivatives, dimensions, ""},
		{cube, "tcube", "$r4:$r5:$r6", derivatives, "", fetch},
		{cubeArray, "acube", "$r4:$r5:$r6:$r7", derivatives, "", fetch},
	} {
		derivative := "$r8:$r9:$r10:$r11"
		if test.target == oneD || test.target == oneDArray {
			derivative = "$r8:$r9"
		}
		for text, want := range map[string]string{
			"texgrad t all $r0:$r1:$r2:$r3 %s $t0 $s0 %s " + derivative: test.grad,
			"texgather t all dfp r $r0:$r1:$r2:$r3 %s $t0 $s0 %s ()":    test.gathered,
			"texfetch t lzero all $r0:$r1:$r2:$r3 %s $t0 $s0 %s ()":     test.fetched,
		} {
			r := newRig()
			r.header.Target = test.target
			_, err := r.ask(t, fmt.Sprintf(text, test.name, test.at), [4]uint32{}, [4]uint32{})
			if want == "" {
				require.NoError(t, err, text)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}

// TestHostileDescriptors: whatever descriptors and coordinates are, an instruction ends after a
// few accesses.
func TestHostileDescriptors(t *testing.T) {
	random := rapid.Uint32()
	rapid.Check(t, func(t *rapid.T) {
		r := newRig()
		r.header.Format = rapid.SampledFrom(codes(false)).Draw(t, "format")
		w := encode(headerFields, &r.header)
		for i := range w {
			if rapid.Bool().Draw(t, "change") {
				w[i] = random.Draw(t, "header")
			}
		}
		_ = decode(headerFields, &w, &r.header)
		for i := range w {
			w[i] = random.Draw(t, "sampler")
		}
		_ = decode(samplerFields, &w, &r.sampler)
		r.header.Samples, r.sampler.Anisotropy, r.bound.Seamless = 0, 0, rapid.Bool().Draw(t, "seamless")
		target := targets[r.header.Target%9]
		names := []string{"t1d", "a1d", "t2d", "a2d", "t3d", "", "tcube", "acube"}
		registers := []string{"$r4", "$r4:$r5", "$r4:$r5", "$r4:$r5:$r6", "$r4:$r5:$r6", "", "$r4:$r5:$r6", "$r4:$r5:$r6:$r7"}
		op := rapid.SampledFrom([]string{
			texLod, "texfetch t llod all $r0:$r1:$r2:$r3 %s $t0 $s0 %s $r8", "texquerylod t all dfp $r0:$r1:$r2:$r3 %s $t0 $s0 %s",
			"tex t lbias shadow all dfp $r0:$r1:$r2:$r3 %s $t0 $s0 %s $r8:$r9",
		}).Draw(t, "op")
		operand := func(name string) (v [4]uint32) {
			for i := range v {
				v[i] = random.Draw(t, name)
			}
			return v
		}
		r.ask(t, fmt.Sprintf(op, names[target], registers[target]), operand("a"), operand("b"))
		require.LessOrEqual(t, r.mem.loads, 2+2*16)
	})
}

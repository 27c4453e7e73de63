package gpu

import (
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// routes are all the ways between the two memories.
var routes = [][2]string{{"vram", "vram"}, {"vram", "gart"}, {"gart", "vram"}, {"gart", "gart"}}

// m2mfSuite covers what M2MF can do: every route, widths, pitches and offsets that are
// not round, inline data, block-linear surfaces on either side, semaphores.
func m2mfSuite(quick bool) []copyCase {
	cases := linearSuite("m2mf", quick)
	for _, n := range []uint32{4, 1, 31, 256, 8188} {
		cases = append(cases, copyCase{Name: fmt.Sprintf("m2mf inline %d bytes", n), Engine: "m2mf",
			From: "gart", To: "vram", LineBytes: n, Lines: 1, DstOffset: 12, Inline: true})
	}
	cases = append(cases,
		copyCase{Name: "m2mf inline lines", Engine: "m2mf", From: "gart", To: "gart", LineBytes: 20, Lines: 30,
			DstPitch: 77, Inline: true},
		copyCase{Name: "m2mf inline to tiles", Engine: "m2mf", From: "gart", To: "vram", LineBytes: 72, Lines: 20,
			Inline: true, DstTiled: &push.Tiling{Width: 200, Height: 40, Depth: 1, BlockH: 1, X: 40, Y: 5}},
	)
	return append(cases, tiledSuite("m2mf", quick)...)
}

// ceSuite covers what nouveau's copy microcode can do.
func ceSuite(engine string, quick bool) []copyCase {
	cases := append(linearSuite(engine, quick), tiledSuite(engine, quick)...)
	formats := []struct {
		name string
		f    shuffle
	}{
		{"4x1 identity", shuffle{Bytes: 1, Src: 4, Swizzle: []uint32{0, 1, 2, 3}}},
		{"4x1 reversed", shuffle{Bytes: 1, Src: 4, Swizzle: []uint32{3, 2, 1, 0}}},
		{"2x2 to 4x2 with constants", shuffle{Bytes: 2, Src: 2, Swizzle: []uint32{1, push.SwzConst0, push.SwzConst1, 0}, Const: [2]uint32{0x11223344, 0xaabbccdd}}},
		{"3x1 to 4x1 with zero", shuffle{Bytes: 1, Src: 3, Swizzle: []uint32{2, 1, 0, push.SwzZero}}},
		{"1x4 spread", shuffle{Bytes: 4, Src: 1, Swizzle: []uint32{0, push.SwzConst1, push.SwzZero}, Const: [2]uint32{1, 0x01020304}}},
		{"4x1 to 2x1", shuffle{Bytes: 1, Src: 4, Swizzle: []uint32{3, 0}}},
		{"fill", shuffle{Bytes: 4, Src: 1, Swizzle: []uint32{push.SwzConst0}, Const: [2]uint32{0xcafef00d, 0}}},
	}
	for _, f := range formats {
		format := f.f
		cases = append(cases, copyCase{Name: engine + " format " + f.name, Engine: engine, From: "gart", To: "vram",
			LineBytes: 61, Lines: 9, SrcPitch: 1001, DstPitch: 1203, Format: &format})
	}
	return append(cases, copyCase{Name: engine + " format to tiles", Engine: engine, From: "gart", To: "vram",
		LineBytes: 20, Lines: 30, SrcPitch: 128, Format: &formats[1].f,
		DstTiled: &push.Tiling{Width: 50, Height: 64, Depth: 1, BlockH: 1, X: 7, Y: 3}})
}

// sizedSuite is one large copy each way by each engine, to be timed.
func sizedSuite(bytes uint32, engines ...string) (cases []copyCase) {
	for _, e := range engines {
		for _, r := range routes {
			cases = append(cases, copyCase{Name: e + " " + r[0] + " to " + r[1], Engine: e, From: r[0], To: r[1],
				LineBytes: 4096, Lines: bytes / 4096, Times: 20})
		}
	}
	return cases
}

func linearSuite(engine string, quick bool) []copyCase {
	var cases []copyCase
	add := func(name string, c copyCase) {
		c.Name, c.Engine = engine+" "+name, engine
		cases = append(cases, c)
	}
	for _, r := range routes {
		route := r[0] + " to " + r[1]
		add("pages, "+route, copyCase{From: r[0], To: r[1], LineBytes: 4096, Lines: 32, Semaphore: "one"})
		add("odd, "+route, copyCase{From: r[0], To: r[1], LineBytes: 333, Lines: 21, SrcPitch: 517, DstPitch: 1111,
			SrcOffset: 3, DstOffset: 29, Semaphore: "four"})
	}
	shapes := []struct{ line, lines, srcPitch, dstPitch, srcOff, dstOff uint32 }{
		{1, 1, 0, 0, 0, 0},
		{1, 1, 0, 0, 4095, 1},
		{3, 7, 5, 9, 1, 2},
		{4097, 2, 4099, 5001, 7, 11},
		{64, 300, 64, 64, 0, 0},
		{100, 10, 0, 100, 0, 0},
		{200, 8, 50, 200, 0, 0}, // source lines that overlap
	}
	if quick {
		shapes = shapes[:3]
	}
	for _, s := range shapes {
		name := fmt.Sprintf("%d bytes x %d, pitch %d to %d, offset %d to %d", s.line, s.lines, s.srcPitch, s.dstPitch, s.srcOff, s.dstOff)
		add(name, copyCase{From: "vram", To: "gart", LineBytes: s.line, Lines: s.lines, SrcPitch: s.srcPitch, DstPitch: s.dstPitch,
			SrcOffset: s.srcOff, DstOffset: s.dstOff})
	}
	if !quick {
		add("many lines", copyCase{From: "gart", To: "vram", LineBytes: 64, Lines: push.MaxM2MFLines, Semaphore: "four"})
		add("a megabyte", copyCase{From: "gart", To: "vram", LineBytes: 4096, Lines: 256})
	}
	return cases
}

func tiledSuite(engine string, quick bool) []copyCase {
	var cases []copyCase
	heights := []uint32{0, 1, 2, 3, 4, 5}
	if quick {
		heights = []uint32{1, 4}
	}
	for _, h := range heights {
		t := &push.Tiling{Width: 300, Height: 150, Depth: 1, BlockH: h, X: 20, Y: 9}
		cases = append(cases,
			copyCase{Name: fmt.Sprintf("%s to tiles, block height %d", engine, h), Engine: engine, From: "gart", To: "vram",
				LineBytes: 230, Lines: 120, SrcPitch: 257, DstTiled: t},
			copyCase{Name: fmt.Sprintf("%s from tiles, block height %d", engine, h), Engine: engine, From: "vram", To: "gart",
				LineBytes: 230, Lines: 120, DstPitch: 301, SrcTiled: t, Semaphore: "one"})
	}
	deep := &push.Tiling{Width: 128, Height: 40, Depth: 5, BlockH: 1, BlockD: 2, X: 16, Y: 4, Z: 3}
	other := &push.Tiling{Width: 192, Height: 64, Depth: 2, BlockH: 2, X: 48, Y: 11, Z: 1}
	return append(cases,
		copyCase{Name: engine + " to a layer", Engine: engine, From: "gart", To: "vram", LineBytes: 100, Lines: 33, DstTiled: deep},
		copyCase{Name: engine + " from a layer", Engine: engine, From: "vram", To: "gart", LineBytes: 100, Lines: 33, SrcTiled: deep},
		copyCase{Name: engine + " tiles to tiles", Engine: engine, From: "vram", To: "vram", LineBytes: 112, Lines: 36,
			SrcTiled: deep, DstTiled: other, Semaphore: "four"})
}

package gpu

import (
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// routes are all the ways between the two memories.
var routes = [][2]string{{"vram", "vram"}, {"vram", "gart"}, {"gart", "vram"}, {"gart", "gart"}}

// sizedSuite is one large copy each way, to be timed.
func sizedSuite(engine string, bytes uint32) (cases []copyCase) {
	for _, r := range routes {
		cases = append(cases, copyCase{Name: engine + " " + r[0] + " to " + r[1], Engine: engine, From: r[0], To: r[1],
			LineBytes: 4096, Lines: bytes / 4096, Times: 20})
	}
	return cases
}

// suite is every route, with widths, pitches and offsets that are not round, and semaphores. Tiles and
// formats are the engine's own, whatever the kernel: its tests and Mesa use them.
func suite(engine string, quick bool) []copyCase {
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

package push

// Engine is an engine that copies.
type Engine int

// Engines that copy.
const (
	M2MF Engine = iota // of the graphics engine
	CE0
	CE1
	HopperCopy // any of a GH100
)

// CopyEngines are those of GF100.
var CopyEngines = []Engine{M2MF, CE0, CE1}

var engines = [...]struct {
	name string
	Object
	// source is the method of eight words: addresses of source and destination, high and low, pitches,
	// bytes of a line, lines. exec then starts the copy. M2MF has another order.
	source Method
	exec   uint32
}{
	M2MF:       {"M2MF", Object{ClassM2MF, UnitGR, 2}, 0, 0},
	CE0:        {"CE0", Object{ClassCE0, UnitCE0, 4}, ceSource, ceSrcLinear | ceDstLinear},
	CE1:        {"CE1", Object{ClassCE1, UnitCE1, 5}, ceSource, ceSrcLinear | ceDstLinear},
	HopperCopy: {"COPY", Object{ClassHopperCopy, UnitGR, 4}, hopperSource, hopperCopy},
}

// String names the engine.
func (e Engine) String() string { return engines[e].name }

// Object is the engine's class at its subchannel.
func (e Engine) Object() Object { return engines[e].Object }

// Bind gives engines their subchannels.
func (b *Buffer) Bind(list ...Engine) *Buffer {
	for _, e := range list {
		b.SetObject(e.Object())
	}
	return b
}

// NonStall raises the event of the engine that owns e's subchannel.
func (b *Buffer) NonStall(e Engine) *Buffer { return b.Inc(e.Object().Subchan, HostNonStall, 0) }

// Limits of one launch of Copy, in bytes and lines.
const (
	copyLine  = 4096
	copyLines = 2047 // as many as nouveau asks of one launch
)

// Copy copies n bytes from src to dst, in lines as the kernel does, then the rest.
func (b *Buffer) Copy(e Engine, dst, src, n uint64) *Buffer {
	for n > 0 {
		line, lines := uint64(copyLine), min(n/copyLine, copyLines)
		if lines == 0 {
			line, lines = n, 1
		}
		b.CopyLines(e, Surface{VA: dst, Pitch: uint32(line)}, Surface{VA: src, Pitch: uint32(line)}, uint32(line), uint32(lines))
		moved := line * lines
		dst, src, n = dst+moved, src+moved, n-moved
	}
	return b
}

// Surface is one side of an engine copy.
type Surface struct {
	VA    uint64
	Pitch uint32 // bytes from line to line
}

// CopyLines copies a rectangle.
func (b *Buffer) CopyLines(e Engine, dst, src Surface, lineBytes, lines uint32) *Buffer {
	sc := e.Object().Subchan
	if e != M2MF {
		return b.Inc(sc, engines[e].source, hi(src.VA), lo(src.VA), hi(dst.VA), lo(dst.VA), src.Pitch, dst.Pitch, lineBytes, lines).
			Inc(sc, ceExec, engines[e].exec)
	}
	return b.Inc(sc, m2mfOut, hi(dst.VA), lo(dst.VA)).
		Inc(sc, m2mfIn, hi(src.VA), lo(src.VA), src.Pitch, dst.Pitch, lineBytes, lines).
		Inc(sc, m2mfLaunch, m2mfSrcPitch|m2mfDstPitch)
}

// Inline writes words to dst through M2MF.
func (b *Buffer) Inline(dst uint64, words ...uint32) *Buffer {
	sc := M2MF.Object().Subchan
	for len(words) > 0 {
		n := min(len(words), maxInline)
		bytes := uint32(n * 4)
		b.Inc(sc, m2mfOut, hi(dst), lo(dst)).Inc(sc, m2mfPitchOut, bytes, bytes, 1).
			Inc(sc, m2mfLaunch, m2mfInline|m2mfSrcPitch|m2mfDstPitch).NonInc(sc, m2mfData, words[:n]...)
		dst, words = dst+uint64(bytes), words[n:]
	}
	return b
}

// Methods of the copy engines as nouveau's microcode (ce/fuc/com.fuc) defines
// them, for classes 90b5 and 90b8 alike. They are not those of cl90b5.h.
const (
	ceExec   Method = 0x300
	ceSource Method = 0x30c // high, low, destination high, low, pitches (19 bits), bytes or elements (16 bits), lines (13 bits)

	ceSrcLinear = 1 << 4 // bits of ceExec
	ceDstLinear = 1 << 8
)

// Methods of c8b5. Source: clc8b5.h.
const (
	hopperSource Method = 0x400

	// hopperCopy is not pipelined, flushes, and has lines with pitches on both sides.
	hopperCopy = 2<<0 | 1<<2 | 1<<7 | 1<<8 | 1<<9
)

// Methods of MEMORY_TO_MEMORY_FORMAT, class 9039. Source: cl9039.h.
const (
	m2mfOut      Method = 0x238 // VA 39:32, then 31:0
	m2mfLaunch   Method = 0x300
	m2mfData     Method = 0x304
	m2mfIn       Method = 0x30c // as out, then pitches, bytes of a line, lines
	m2mfPitchOut Method = 0x318 // then bytes of a line, then lines

	m2mfInline   = 1 << 0 // bits of m2mfLaunch
	m2mfSrcPitch = 1 << 4
	m2mfDstPitch = 1 << 8
)

// maxInline is how many words follow one header here.
const maxInline = 2047

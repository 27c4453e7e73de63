package push

// Engine is an engine that copies.
type Engine int

// Engines that copy.
const (
	M2MF Engine = iota // of the graphics engine
	CE0
	CE1
)

// CopyEngines are all of them.
var CopyEngines = []Engine{M2MF, CE0, CE1}

var engines = [...]struct {
	name string
	Object
}{
	M2MF: {"M2MF", Object{ClassM2MF, UnitGR, 2}},
	CE0:  {"CE0", Object{ClassCE0, UnitCE0, 4}},
	CE1:  {"CE1", Object{ClassCE1, UnitCE1, 5}},
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
	copyLines = MaxM2MFLines
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

// CopyLines copies a rectangle.
func (b *Buffer) CopyLines(e Engine, dst, src Surface, lineBytes, lines uint32) *Buffer {
	if e == M2MF {
		b.M2MFCopy(e.Object().Subchan, src, dst, lineBytes, lines, 0)
	} else {
		b.CECopy(e.Object().Subchan, src, dst, lineBytes, lines, 0, nil)
	}
	return b
}

// Inline writes words to dst through M2MF.
func (b *Buffer) Inline(dst uint64, words ...uint32) *Buffer {
	for len(words) > 0 {
		n := min(len(words), maxInline)
		bytes := uint32(n * 4)
		b.M2MFInline(M2MF.Object().Subchan, Surface{VA: dst, Pitch: bytes}, bytes, 1, 0, words[:n])
		dst, words = dst+uint64(bytes), words[n:]
	}
	return b
}

// Methods of the copy engines as nouveau's microcode (ce/fuc/com.fuc) defines
// them, for classes 90b5 and 90b8 alike. They are not those of cl90b5.h.
const (
	CESrcTileMode Method = 0x200 // width 3:0 (0 = 64 B, 14 = 16 B), log2 GOB height 7:4, log2 depth 11:8;
	// then the sizes X (elements), Y and Z, then the place Z, X and Y
	CEDstTileMode    Method = 0x220
	CEExec           Method = 0x300
	CESrcAddressHigh Method = 0x30c // then low, destination high, low, pitches (19 bits), bytes or elements (16 bits), lines (13 bits)
	CEFormat         Method = 0x32c // then two constants
	CEQueryHigh      Method = 0x338 // then low, then the counter
)

// Bits of CEExec.
const (
	CEExecFormat     = 1 << 0
	CEExecSrcLinear  = 1 << 4
	CEExecDstLinear  = 1 << 8
	CEExecQuery      = 1 << 12
	CEExecQueryShort = 1 << 13 // the counter word only; else {counter, 0, time lo, time hi}
)

// Swizzle sources of a CE format, besides source component 0 to 3.
const (
	SwzConst0 = 4
	SwzConst1 = 5
	SwzZero   = 6
)

// CEFormatWord describes elements of components of bytes 1 to 4 each: src
// components in, and for each component out where it comes from.
func CEFormatWord(bytes, src int, swizzle ...uint32) uint32 {
	w := uint32(bytes-1)<<16 | uint32(src-1)<<20 | uint32(len(swizzle)-1)<<24
	for i, s := range swizzle {
		w |= s << (4 * i)
	}
	return w
}

// CEQuery is the semaphore that a copy releases at its end.
type CEQuery struct {
	VA      uint64
	Counter uint32
	Short   bool
}

// CECopy copies x elements (bytes without CEExecFormat in flags) of y lines. A
// tiled side's Width and X are then in elements too.
func (b *Buffer) CECopy(sc Subchan, src, dst Surface, x, y, flags uint32, q *CEQuery) {
	b.ceSide(sc, src, CESrcTileMode)
	b.ceSide(sc, dst, CEDstTileMode)
	b.Inc(sc, CESrcAddressHigh, hi(src.VA), lo(src.VA), hi(dst.VA), lo(dst.VA), src.Pitch, dst.Pitch, x, y)
	if src.Tiling == nil {
		flags |= CEExecSrcLinear
	}
	if dst.Tiling == nil {
		flags |= CEExecDstLinear
	}
	if q != nil {
		b.Inc(sc, CEQueryHigh, hi(q.VA), lo(q.VA), q.Counter)
		flags |= CEExecQuery
		if q.Short {
			flags |= CEExecQueryShort
		}
	}
	b.Inc(sc, CEExec, flags)
}

func (b *Buffer) ceSide(sc Subchan, s Surface, mode Method) {
	if s.Tiling == nil {
		return
	}
	t := s.Tiling
	b.Inc(sc, mode, t.mode(), t.Width, t.Height, t.Depth, t.Z, t.X, t.Y)
}

// Methods of MEMORY_TO_MEMORY_FORMAT, class 9039. Source: cl9039.h.
const (
	M2MFSrcBlockSize Method = 0x204 // log2 of GOBs: width 3:0, height 7:4, depth 11:8; then width (bytes), height, depth, layer
	M2MFDstBlockSize Method = 0x220
	M2MFOffsetOutA   Method = 0x238 // VA 39:32, then 31:0
	M2MFLaunch       Method = 0x300
	M2MFInlineData   Method = 0x304
	M2MFOffsetInA    Method = 0x30c // as out, then the pitch
	M2MFPitchOut     Method = 0x318 // then bytes of a line, then lines
	M2MFSemaphoreA   Method = 0x32c // VA 39:32, then 31:0, then the payload
	M2MFSrcOriginX   Method = 0x344 // bytes, then the line
	M2MFDstOriginX   Method = 0x34c
)

// Bits of M2MFLaunch.
const (
	LaunchInline     = 1 << 0
	LaunchSrcPitch   = 1 << 4
	LaunchDstPitch   = 1 << 8
	LaunchFlush      = 1 << 12
	LaunchSemaphore  = 2 << 12
	LaunchSemOneWord = 1 << 20
)

// maxInline is how many words follow one header here.
const maxInline = 2047

// MaxM2MFLines is as many lines as nouveau asks of one launch.
const MaxM2MFLines = 2047

// Surface is one side of an engine copy.
type Surface struct {
	VA    uint64
	Pitch uint32 // bytes from line to line; used when Tiling is nil
	*Tiling
}

// Tiling describes a block-linear surface and the place in it.
type Tiling struct {
	Width, Height, Depth uint32 // bytes, lines, layers
	BlockW               uint32 // log2 GOBs
	BlockH               uint32
	BlockD               uint32
	X, Y, Z              uint32 // bytes, line, layer of the rectangle's corner
}

func (t *Tiling) mode() uint32 { return t.BlockW | t.BlockH<<4 | t.BlockD<<8 }

// M2MFCopy copies lines of lineBytes each from src to dst. flags are completion
// bits for the launch.
func (b *Buffer) M2MFCopy(sc Subchan, src, dst Surface, lineBytes, lines, flags uint32) {
	b.m2mfSide(sc, src, M2MFSrcBlockSize, M2MFSrcOriginX)
	b.m2mfSide(sc, dst, M2MFDstBlockSize, M2MFDstOriginX)
	b.Inc(sc, M2MFOffsetOutA, hi(dst.VA), lo(dst.VA))
	b.Inc(sc, M2MFOffsetInA, hi(src.VA), lo(src.VA), src.Pitch, dst.Pitch, lineBytes, lines)
	if src.Tiling == nil {
		flags |= LaunchSrcPitch
	}
	if dst.Tiling == nil {
		flags |= LaunchDstPitch
	}
	b.Inc(sc, M2MFLaunch, flags)
}

func (b *Buffer) m2mfSide(sc Subchan, s Surface, block, origin Method) {
	if s.Tiling == nil {
		return
	}
	t := s.Tiling
	b.Inc(sc, block, t.mode(), t.Width, t.Height, t.Depth, t.Z)
	b.Inc(sc, origin, t.X, t.Y)
}

// M2MFInline writes data, padded to words, to lines of lineBytes at dst.
func (b *Buffer) M2MFInline(sc Subchan, dst Surface, lineBytes, lines, flags uint32, data []uint32) {
	b.m2mfSide(sc, dst, M2MFDstBlockSize, M2MFDstOriginX)
	b.Inc(sc, M2MFOffsetOutA, hi(dst.VA), lo(dst.VA))
	b.Inc(sc, M2MFPitchOut, dst.Pitch, lineBytes, lines)
	flags |= LaunchInline | LaunchSrcPitch
	if dst.Tiling == nil {
		flags |= LaunchDstPitch
	}
	b.Inc(sc, M2MFLaunch, flags)
	for len(data) > 0 {
		n := min(len(data), maxInline)
		b.NonInc(sc, M2MFInlineData, data[:n]...)
		data = data[n:]
	}
}

// M2MFSemaphore sets what a launch with LaunchSemaphore releases.
func (b *Buffer) M2MFSemaphore(sc Subchan, va uint64, payload uint32) {
	b.Inc(sc, M2MFSemaphoreA, hi(va), lo(va), payload)
}

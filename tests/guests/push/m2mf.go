package push

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

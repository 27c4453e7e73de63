package push

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

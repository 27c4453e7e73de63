package interp

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func (x *exec) movSpecial(lane int) {
	l, n := x.b.Launch, x.in.Src[0].Reg
	tid := x.b.thread(x.warp, lane)
	packed := func(v [3]uint32) uint32 { return v[0] | v[1]<<16 | v[2]<<26 }
	bit := uint32(1) << lane
	switch n {
	case isa.SRLaneID:
		x.set(lane, uint32(lane))
	case isa.SRPhysID:
		x.set(lane, uint32(x.warp)<<8)
	case isa.SRTID:
		x.set(lane, packed(tid))
	case isa.SRTIDX, isa.SRTIDX + 1, isa.SRTIDX + 2:
		x.set(lane, tid[n-isa.SRTIDX])
	case isa.SRCTAIDX, isa.SRCTAIDX + 1, isa.SRCTAIDX + 2:
		x.set(lane, x.b.ID[n-isa.SRCTAIDX])
	case isa.SRNTID:
		x.set(lane, packed(l.Block))
	case isa.SRNTIDX, isa.SRNTIDX + 1, isa.SRNTIDX + 2:
		x.set(lane, l.Block[n-isa.SRNTIDX])
	case isa.SRGridID:
		x.set(lane, l.GridID)
	case isa.SRNCTAIDX, isa.SRNCTAIDX + 1, isa.SRNCTAIDX + 2:
		x.set(lane, l.Grid[n-isa.SRNCTAIDX])
	case isa.SRSharedWin:
		x.set(lane, l.SharedWindow)
	case isa.SRSharedLen, isa.SRLocalLen:
		x.set(lane, windowSize)
	case isa.SRShared:
		x.set(lane, l.Shared)
	case isa.SRLocalWin:
		x.set(lane, l.LocalWindow)
	case isa.SRLocalPos:
		x.set(lane, l.LocalPos)
	case isa.SRLocalNeg:
		x.set(lane, windowSize-l.LocalNeg)
	case isa.SRLaneEQ:
		x.set(lane, bit)
	case isa.SRLaneEQ + 1:
		x.set(lane, bit-1)
	case isa.SRLaneEQ + 2:
		x.set(lane, bit|(bit-1))
	case isa.SRLaneEQ + 3:
		x.set(lane, bits.Reverse32(bits.Reverse32(bit)-1))
	case isa.SRLaneEQ + 4:
		x.set(lane, -bit)
	case isa.SRClock:
		x.set(lane, uint32(x.b.Clock))
	case isa.SRClock + 1:
		x.set(lane, uint32(x.b.Clock>>32))
	default:
		x.fail(NotImplemented, lane, 0, "special register "+isa.SpecialName(n))
	}
}

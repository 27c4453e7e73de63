package interp

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Special registers by number.
const (
	srLaneID    = 0x00
	srPhysID    = 0x03
	srTID       = 0x20
	srCTAID     = 0x25
	srNTID      = 0x28
	srGridID    = 0x2c
	srNCTAID    = 0x2d
	srSharedWin = 0x30
	srSharedLen = 0x31
	srShared    = 0x32
	srLocalWin  = 0x34
	srLocalLen  = 0x35
	srLocalPos  = 0x36
	srLocalNeg  = 0x37
	srLaneEQ    = 0x38
	srClock     = 0x50
)

func (x *exec) movSpecial(lane int) {
	l, n := x.b.Launch, x.in.Src[0].Reg
	tid := x.b.thread(x.warp, lane)
	packed := func(v [3]uint32) uint32 { return v[0] | v[1]<<16 | v[2]<<26 }
	bit := uint32(1) << lane
	switch n {
	case srLaneID:
		x.set(lane, uint32(lane))
	case srPhysID:
		x.set(lane, uint32(x.warp)<<8)
	case srTID:
		x.set(lane, packed(tid))
	case srTID + 1, srTID + 2, srTID + 3:
		x.set(lane, tid[n-srTID-1])
	case srCTAID, srCTAID + 1, srCTAID + 2:
		x.set(lane, x.b.ID[n-srCTAID])
	case srNTID:
		x.set(lane, packed(l.Block))
	case srNTID + 1, srNTID + 2, srNTID + 3:
		x.set(lane, l.Block[n-srNTID-1])
	case srGridID:
		x.set(lane, l.GridID)
	case srNCTAID, srNCTAID + 1, srNCTAID + 2:
		x.set(lane, l.Grid[n-srNCTAID])
	case srSharedWin:
		x.set(lane, l.SharedWindow)
	case srSharedLen, srLocalLen:
		x.set(lane, windowSize)
	case srShared:
		x.set(lane, l.Shared)
	case srLocalWin:
		x.set(lane, l.LocalWindow)
	case srLocalPos:
		x.set(lane, l.LocalPos)
	case srLocalNeg:
		x.set(lane, windowSize-l.LocalNeg)
	case srLaneEQ: // then less, less or equal, greater, greater or equal
		x.set(lane, bit)
	case srLaneEQ + 1:
		x.set(lane, bit-1)
	case srLaneEQ + 2:
		x.set(lane, bit|(bit-1))
	case srLaneEQ + 3:
		x.set(lane, bits.Reverse32(bits.Reverse32(bit)-1))
	case srLaneEQ + 4:
		x.set(lane, -bit)
	case srClock:
		x.set(lane, uint32(x.b.Clock))
	case srClock + 1:
		x.set(lane, uint32(x.b.Clock>>32))
	default:
		x.fail(NotImplemented, lane, 0, "special register "+isa.SpecialName(n))
	}
}

package fermi

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() { meanings[isa.MovSpecial] = (*inst).movSpecial }

// movSpecial reads a special register. Those that are not here are left to another executor.
func (x *inst) movSpecial() {
	b, n := x.b, x.Src[0].Reg
	switch n {
	case isa.SRLaneID:
		x.set(b.LaneID())
	case isa.SRPhysID:
		x.set(b.Shl(b.WarpID(), b.Const(8)))
	case isa.SRTID:
		x.set(b.PackedID())
	case isa.SRTIDX, isa.SRTIDX + 1, isa.SRTIDX + 2:
		x.set(b.ThreadID(int(n - isa.SRTIDX)))
	case isa.SRCTAIDX, isa.SRCTAIDX + 1, isa.SRCTAIDX + 2:
		x.set(b.BlockID(int(n - isa.SRCTAIDX)))
	case isa.SRNTIDX, isa.SRNTIDX + 1, isa.SRNTIDX + 2:
		x.set(b.BlockSize(int(n - isa.SRNTIDX)))
	case isa.SRNCTAIDX, isa.SRNCTAIDX + 1, isa.SRNCTAIDX + 2:
		x.set(b.GridSize(int(n - isa.SRNCTAIDX)))
	case isa.SRLaneEQ:
		x.set(b.Shl(b.Const(1), b.LaneID()))
	default:
		b.Refuse(isa.SpecialName(n))
	}
}

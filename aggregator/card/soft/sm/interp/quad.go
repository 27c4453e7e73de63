package interp

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Quads are four neighbouring lanes, whose differences are derivatives.

func init() {
	warpOps[isa.QuadOn] = (*exec).quadOn
	warpOps[isa.QuadPop] = (*exec).quadPop
	warpOps[isa.QuadOp] = (*exec).quadOp
}

// quadOn lets all lanes of the quads run in which one runs, also those that ended.
func (x *exec) quadOn() {
	x.push(WholeQuads, 0)
	if x.fault != nil {
		return
	}
	quads := x.w.Active
	quads |= quads >> 1 & 0x55555555
	quads |= quads >> 2 & 0x11111111
	x.w.Active = quads & 0x11111111 * 15
}

func (x *exec) quadPop() {
	n := len(x.w.Stack)
	if n == 0 || x.w.Stack[n-1].Kind != WholeQuads {
		x.fail(StackMismatch, -1, 0, "no quadon for this quadpop")
		return
	}
	x.w.Active, x.w.Stack = x.w.Stack[n-1].Lanes, x.w.Stack[:n-1]
	x.w.resume()
}

// quadOp combines a value of another lane of the quad with the lane's own. Each place in the
// quad has its operation.
func (x *exec) quadOp() {
	others := x.w.Regs[x.in.Src[0].Reg] // as they were before any lane wrote
	for lane := range x.each {
		from := lane&^3 | int(x.in.Mod[isa.Quad]&3)
		switch x.in.Mod[isa.Quad] {
		case 4: // dx
			from = lane ^ 1
		case 5: // dy
			from = lane ^ 2
		}
		other := others[from]
		if x.flushes() {
			other = flush(other)
		}
		a, b := float64(math.Float32frombits(other)), float64(x.f32(1, lane))
		switch x.in.Mod[isa.QuadOp0+isa.Mod(lane&3)] {
		case 1: // subr
			a = -a
		case 2: // sub
			b = -b
		case 3: // mov2
			a = math.Copysign(0, -1)
		}
		mode := x.in.Mod[isa.Round]
		x.setF32(lane, narrow(zeroSum(AddOdd(a, b), a, b, mode), mode))
	}
}

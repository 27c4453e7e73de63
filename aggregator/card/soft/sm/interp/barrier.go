package interp

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	warpOps[isa.Barrier] = (*exec).barrier
	warpOps[isa.MemBar] = func(x *exec) { x.b.fence.Add(1) } // other blocks run on other processors
	warpOps[isa.CacheCtl] = func(*exec) {}
	warpOps[isa.VoteAll] = func(x *exec) { x.vote(func(yes uint32) bool { return yes == x.lanes }) }
	warpOps[isa.VoteAny] = func(x *exec) { x.vote(func(yes uint32) bool { return yes != 0 }) }
	warpOps[isa.VoteUni] = func(x *exec) { x.vote(func(yes uint32) bool { return yes == 0 || yes == x.lanes }) }
}

// vote writes the verdict, and the lanes that said yes.
func (x *exec) vote(verdict func(yes uint32) bool) {
	yes := x.lanes & x.predicate(&x.in.Src[0])
	for lane := range x.each {
		x.setPred(0, lane, verdict(yes))
		x.set(lane, yes)
	}
}

// barrier counts the warp in: whole warps arrive, whatever their lanes do.
func (x *exec) barrier() {
	lane := bits.TrailingZeros32(x.lanes)
	id, count := x.u32(0, lane), x.u32(1, lane)
	if id >= min(x.b.Launch.Barriers, uint32(len(x.b.Barriers))) || count%Lanes != 0 || count > uint32(Lanes*len(x.b.Warps)) {
		x.fail(BadBarrier, -1, 0, "")
		return
	}
	bar := &x.b.Barriers[id]
	if bar.Arrived == 0 {
		*bar = Barrier{}
	}
	bar.Arrived++
	bar.Expected = int(count / Lanes)
	yes := x.lanes & x.predicate(&x.in.Src[3])
	bar.True += bits.OnesCount32(yes)
	bar.Any = bar.Any || yes != 0
	bar.Not = bar.Not || yes != x.lanes
	if x.in.Mod[isa.Bar] != isa.BarArrive {
		x.w.Wait, x.w.WaitPC, x.w.WaitBy = int8(id), x.pc, x.lanes
	}
	x.b.release()
}

// release lets the warps of complete barriers go on. A barrier without a count is complete when
// all warps that still run arrived.
func (b *Block) release() {
	running := 0
	for i := range b.Warps {
		if !b.Warps[i].Done() {
			running++
		}
	}
	for id := range b.Barriers {
		bar := &b.Barriers[id]
		want := bar.Expected
		if want == 0 {
			want = running
		}
		if bar.Arrived == 0 || bar.Arrived < want {
			continue
		}
		for i := range b.Warps {
			if w := &b.Warps[i]; w.Wait == int8(id) {
				w.Wait = NoBarrier
				x := exec{b: b, w: w, warp: i, lanes: w.WaitBy}
				if x.in, _ = b.Launch.Program.at(w.WaitPC); x.in != nil { // else the code was unmapped
					x.barrierResult(bar)
				}
			}
		}
		*bar = Barrier{}
	}
}

func (x *exec) barrierResult(bar *Barrier) {
	kind := x.in.Mod[isa.Bar]
	if x.in.PDst[0] == isa.True && (kind != isa.BarPopc || x.in.Dst.Reg == isa.Zero) {
		return // as most
	}
	verdict := kind == isa.BarAnd && !bar.Not || kind == isa.BarOr && bar.Any
	for lane := range x.each {
		x.setPred(0, lane, verdict)
		if kind == isa.BarPopc {
			x.set(lane, uint32(bar.True))
		}
	}
}

// Settle lets warps go on whose barriers are complete. Whoever ends a warp by other means than this package
// calls it then.
func (b *Block) Settle() { b.release() }

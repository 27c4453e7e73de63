package fermi

import (
	"encoding/binary"
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// FrontEnd decodes the program of a launch. It implements compile.FrontEnd.
type FrontEnd struct{ Launch *interp.Launch }

// Options are those of a launch.
func Options(l *interp.Launch) compile.Options {
	return compile.Options{
		Entry: l.Entry, Grid: l.Grid, Block: l.Block, LocalPos: l.LocalPos, LocalNeg: l.LocalNeg,
		Constant: func(bank uint8, offset int64) (uint32, bool) { return constant(l, bank, offset) },
	}
}

// constant reads a word of a constant buffer, if it has it.
func constant(l *interp.Launch, bank uint8, offset int64) (uint32, bool) {
	b := &l.Banks[bank&31]
	if !b.Valid || offset < 0 || offset%4 != 0 || offset+4 > int64(b.Size) {
		return 0, false
	}
	var word [4]byte
	err := l.Memory.Load(b.Addr+uint64(offset), word[:])
	return binary.LittleEndian.Uint32(word[:]), err == nil
}

// Fits reports whether a program serves a launch: its constants are not larger than the program takes them
// to be.
func Fits(p *compile.Program, l *interp.Launch) bool {
	for _, c := range p.Constants {
		if v, ok := constant(l, c.Bank, c.Offset); ok && v > c.Max {
			return false
		}
	}
	return true
}

// An inst is an instruction whose meaning is being emitted.
type inst struct {
	*isa.Inst
	b *compile.Builder
}

// meanings are what operations do. An operation without one is left to another executor.
var meanings [isa.NumOps]func(x *inst)

// flows are how operations change the flow of control.
var flows = map[isa.Op]compile.Flow{
	isa.Bra: compile.Branch, isa.JoinAt: compile.Push, isa.PreBrk: compile.Push, isa.PreCont: compile.Push, isa.PreRet: compile.Push,
	isa.Brk: compile.Leave, isa.Cont: compile.Leave, isa.Ret: compile.Leave, isa.Exit: compile.Exit, isa.Barrier: compile.Barrier,
	isa.Call: compile.Elsewhere, isa.QuadOn: compile.Elsewhere, isa.QuadPop: compile.Elsewhere, isa.Bpt: compile.Elsewhere,
}

// kinds are the entries of the control stack that operations make, or go to.
var kinds = map[isa.Op]interp.EntryKind{
	isa.JoinAt: interp.JoinTo, isa.PreBrk: interp.BreakTo, isa.PreCont: interp.ContTo, isa.PreRet: interp.ReturnTo,
	isa.Brk: interp.BreakTo, isa.Cont: interp.ContTo, isa.Ret: interp.ReturnTo,
}

// Decode implements compile.FrontEnd.
func (f *FrontEnd) Decode(pc uint32) (out compile.Instruction, ok bool) {
	if pc%4 != 0 {
		return out, false
	}
	word, err := f.Launch.Program.Word(pc)
	if err != nil {
		return out, false
	}
	code := interp.NewCode(word, pc)
	if !code.Good(f.Launch) {
		return out, false
	}
	in := &code.Inst
	out = compile.Instruction{
		PC: pc, Next: pc + uint32(in.Size), Word: word, Name: in.Form.Name(), Join: in.Join,
		Guard:  compile.Guard{Pred: in.Guard.Pred, Not: in.Guard.Not, Always: in.Guard.Always()},
		Flow:   flows[in.Op],
		Kind:   compile.EntryKind(kinds[in.Op]),
		Target: in.Target, Whole: in.Mod[isa.AllWarp] != 0,
		Locks:  in.Op == isa.LoadLock,
		Reads:  reads(in),
		Writes: writes(in),
	}
	if out.Flow == compile.Barrier {
		out.Barrier, out.Quiet = uint32(in.Src[0].Value), f.quiet(in)
		if in.Join {
			out.Flow = compile.Elsewhere
		}
	}
	if m := meanings[in.Op]; m != nil {
		out.Mean = func(b *compile.Builder) { m(&inst{in, b}) }
	}
	return out, true
}

// quiet reports whether a barrier makes all warps of a block wait for each other, and gives no result.
func (f *FrontEnd) quiet(in *isa.Inst) bool {
	id, kind := &in.Src[0], in.Mod[isa.Bar]
	fixed := func(v *isa.Operand) bool { return v.Kind != isa.Reg || v.Reg == isa.Zero }
	all := fixed(&in.Src[1]) && in.Src[1].Value == 0
	none := in.PDst[0] == isa.True && (kind != isa.BarPopc || in.Dst.Kind != isa.Reg || in.Dst.Reg == isa.Zero)
	return fixed(id) && uint64(id.Value) < uint64(min(f.Launch.Barriers, state.MaxBarriers)) && all && none &&
		kind != isa.BarArrive && in.Src[3].Reg == isa.True && !in.Src[3].Not
}

// reads are the slots that an instruction reads at most.
func reads(in *isa.Inst) []compile.Slot {
	out := []compile.Slot{}
	pred := func(p uint8) {
		if p != isa.True {
			out = append(out, compile.FirstPred+compile.Slot(p))
		}
	}
	pred(in.Guard.Pred)
	for i := range in.Src {
		switch v := &in.Src[i]; v.Kind {
		case isa.Reg, isa.Memory, isa.Surface:
			n := max(v.Count, 1)
			if v.Mask != 0 {
				n = uint8(bits.OnesCount8(v.Mask))
			}
			for r := int(v.Reg); r < min(int(v.Reg)+int(n), isa.Zero); r++ {
				out = append(out, compile.Slot(r))
			}
		case isa.Pred:
			pred(v.Reg)
		case isa.Flags:
			return nil
		}
	}
	if in.Mod[isa.UseCC] != 0 || in.Mod[isa.Chain] != 0 || in.Op == isa.CSet || in.Op == isa.CSetP || in.Op == isa.GetFlags {
		out = append(out, compile.Zero, compile.Sign, compile.Carry, compile.Overflow)
	}
	return out
}

// writes are the slots that an instruction may change in another executor.
func writes(in *isa.Inst) []compile.Slot {
	out := []compile.Slot{}
	if d := &in.Dst; d.Kind == isa.Reg && d.Reg != isa.Zero {
		n := max(d.Count, 1)
		if d.Mask != 0 {
			n = uint8(bits.OnesCount8(d.Mask))
		}
		for i := range n {
			if r := d.Reg + i; r < isa.Zero {
				out = append(out, compile.Slot(r))
			}
		}
	}
	for _, p := range in.PDst {
		if p != isa.True {
			out = append(out, compile.FirstPred+compile.Slot(p))
		}
	}
	if in.Mod[isa.SetCC] != 0 {
		out = append(out, compile.Zero, compile.Sign, compile.Carry, compile.Overflow)
	}
	return out
}

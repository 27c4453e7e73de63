package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

var edges = [...]uint32{0, 1 << 31, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x3f800000, ^uint32(0), 0x7fffffff, 0xff800000, 0xffc00001, 0x80000001, 0x4f000000, 0xcf000001, 31, 32, 33}

// value draws bits that lie near the edges of formats more often than chance would.
func value(r *rand.Rand) uint32 {
	v := r.Uint32()
	switch r.IntN(6) {
	case 0:
		return uint32(int32(v) >> r.IntN(32))
	case 1, 2:
		return edges[r.IntN(len(edges))]
	case 3:
		return v&0x80ffffff | 0x3f000000
	case 4:
		return v&0x80000fff | edges[2+r.IntN(5)]
	}
	return v
}

// row draws a register: values, or addresses of the data that are side by side or not.
func row(r *rand.Rand, kind, reg int) (out [interp.Lanes]uint32) {
	step := uint32(4) << r.IntN(3)
	base := uint32(smtest.Data&0xffffffff) + uint32(r.IntN(32)*16)
	same := value(r)
	for lane := range out {
		switch {
		case kind == 0 && reg%2 == 0:
			out[lane] = base + step*uint32(lane)
		case kind == 1 && reg%2 == 0:
			out[lane] = base + 4*uint32(r.IntN(100))
		case kind <= 1:
			out[lane] = 1 // the upper half of an address
		case kind == 2:
			out[lane] = uint32(4 * r.IntN(256))
		case kind == 3:
			out[lane] = same
		case kind == 6: // position and length of a field
			out[lane] = uint32(r.IntN(40) | r.IntN(40)<<8)
		default:
			out[lane] = value(r)
		}
	}
	return out
}

// disturb gives the warps of both blocks the same random state at the start of the program.
// Registers that the code reads as descriptions of fields mostly are such.
func (w *twins) disturb(t testing.TB, r *rand.Rand, code []uint64) {
	var kinds [isa.Zero]int
	for reg := range kinds {
		if kinds[reg] = r.IntN(7); reg%2 == 1 && kinds[reg-1] <= 1 { // addresses have two registers
			kinds[reg] = 0
		}
	}
	for _, word := range code {
		in, err := isa.Decode(word, 0)
		if d := &in.Src[1]; err == nil && (in.Op == isa.Extract || in.Op == isa.Insert) && d.Kind == isa.Reg && d.Reg < isa.Zero && r.IntN(4) > 0 {
			kinds[d.Reg] = 6
		}
	}
	for i := range w.slow.Warps {
		v := &w.slow.Warps[i]
		for reg, kind := range kinds {
			v.Regs[reg] = row(r, kind, reg)
			if kind > 1 && r.IntN(3) == 0 { // operands that are equal in some lanes
				for lane, from := 0, r.IntN(reg+1); lane < interp.Lanes; lane += 1 + r.IntN(2) {
					v.Regs[reg][lane] = v.Regs[from][lane]
				}
			}
		}
		for p := range isa.True {
			v.Preds[p] = r.Uint32()
		}
		v.Flags = interp.Flags{Zero: r.Uint32(), Sign: r.Uint32(), Carry: r.Uint32(), Overflow: r.Uint32()}
		if r.IntN(2) == 0 {
			v.Active &= r.Uint32() | 1
			v.Exited = ^v.Active
		}
	}
	require.NoError(t, w.runner.image.Put(w.slow.BlockState))
}

// observed appends the storing of what words write to each thread's local memory.
func observed(t testing.TB, code []uint64) []uint64 {
	text, at := "", 0
	var regs, preds, flags []int
	for _, word := range code {
		in, err := isa.Decode(word, 0)
		require.NoError(t, err)
		if in.Dst.Kind == isa.Reg {
			for i := range max(in.Dst.Count, 1) {
				regs = append(regs, int(in.Dst.Reg+i))
			}
		}
		preds = append(preds, int(in.PDst[0]), int(in.PDst[1]))
		if in.Mod[isa.SetCC] != 0 {
			flags = append(flags, 1)
		}
	}
	sorted := func(s []int, none int) []int {
		slices.Sort(s)
		return slices.DeleteFunc(slices.Compact(s), func(v int) bool { return v >= none })
	}
	for _, reg := range sorted(regs, isa.Zero) {
		text += fmt.Sprintf("st b32 wb l[%#x] $r%d\n", at, reg)
		at += 4
	}
	if len(flags) > 0 { // carry
		text += fmt.Sprintf("add b32 $r0 0x0 0x0 $c\nst b32 wb l[%#x] $r0\n", at)
		at += 4
	}
	for _, p := range sorted(preds, isa.True) {
		text += fmt.Sprintf("selp b32 $r0 0x0 0x1 $p%d\nst b32 wb l[%#x] $r0\n", p, at)
		at += 4
	}
	return append(code, assemble(t, text+"exit\n")...)
}

// wordsOf makes words of a form that seldom are wrong wherever they run: constants that there are, and small
// offsets.
func wordsOf(r *rand.Rand, l *interp.Launch, f *isa.Form, n int) (code []uint64) {
	for range 100 * n {
		for _, word := range smtest.WordsOf(r, f, 1) {
			word &^= 1 << 4 // no join
			in, err := isa.Decode(word, 0)
			if err == nil && in.Src[0].Kind == isa.Memory {
				word &^= (1<<24 - 1) << 26
				if in.Src[0].Space == isa.Global {
					word &^= 0xff << 50
				}
				in, err = isa.Decode(word, 0)
			}
			if err != nil || !interp.NewCode(word, 0).Good(l) || in.Mod[isa.Round]&3 != isa.RN && f.Op != isa.F2I && f.Op != isa.F2F && r.IntN(8) > 0 {
				continue
			}
			bound := func(o isa.Operand) bool { return o.Kind != isa.Const || o.Bank == 0 && o.Value < 0xff0 }
			if bound(in.Src[0]) && bound(in.Src[1]) && bound(in.Src[2]) && len(code) < n {
				code = append(code, word)
			}
		}
	}
	return code
}

// accesses reports whether a word reads or writes memory at an address.
func accesses(word uint64) bool {
	in, err := isa.Decode(word, 0)
	return err == nil && in.Src[0].Kind == isa.Memory
}

// Each form does the same in both, whatever its operands and lanes are.
func TestForms(t *testing.T) {
	c := jittest.Compiler(t)
	r := rand.New(rand.NewPCG(1, 2))
	tested := make(map[isa.Op]bool)
	for _, f := range isa.Forms() {
		if f.Value&8 != 0 {
			continue // short forms have the same operations, in other bits
		}
		l := newLaunch(nil, [3]uint32{32, 1, 1})
		probe := wordsOf(r, l, f, 1)
		if len(probe) == 0 {
			continue
		}
		m := smtest.NewMemory(probe)
		l.Memory, l.Program.Memory = m, m
		front := &fermi.FrontEnd{Launch: l}
		if in, ok := front.Decode(0); !ok || in.Mean == nil || in.Flow != compile.Straight {
			continue
		}
		tested[f.Op] = true
		n, times := 6, scale.Of(1, 20)
		if f.Op == isa.Extract { // few descriptors are of bits that there are
			times *= 8
		}
		if len(probe) > 0 && accesses(probe[0]) { // most addresses are wrong
			n, times = 1, 4*times
		}
		for range times {
			code := wordsOf(r, front.Launch, f, n)
			for i := range code { // flags are of more interest than chance would have it
				if flagged := code[i] | 1<<48; f.Op == isa.IAdd && f.Value&7 == 3 && interp.NewCode(flagged, 0).Good(l) {
					code[i] = flagged
				}
			}
			w := newTwins(t, c, llvm.Quick, observed(t, slices.Clone(code)), [3]uint32{24, 2, 1}, func(m smtest.Memory) {
				for i := range 0x1000 / 4 {
					v := value(r)
					copy(m[smtest.Data-smtest.Base+4*i:], []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
				}
			})
			w.disturb(t, r, code)
			text := ""
			for _, word := range code {
				in, _ := isa.Decode(word, 0)
				text += in.String() + "\n"
			}
			w.block(t, text, forever)
		}
	}
	require.Greater(t, len(tested), 55, "operations that were tested")
}

package simd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// twins are the same block in both executors.
type twins struct {
	slow, fast       *interp.Block
	memory, fastMem  smtest.Memory
	executor         *Executor
	fault, fastFault *interp.Fault
	spent            int // by the last step
}

func newBlock(code []uint64, threads uint32, args []uint32) (*interp.Block, smtest.Memory) {
	m := smtest.NewMemory(code, args...)
	l := &interp.Launch{
		Memory: m, Program: &interp.Program{Memory: m, Base: smtest.Base},
		Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads / 2, 2, 1},
		Registers: 63, Barriers: 16, Shared: 4096, Local: smtest.Local, LocalPos: 256, LocalNeg: 64, SharedWindow: 0xfe000000, LocalWindow: 0xff000000,
	}
	l.Banks[0] = interp.Bank{Addr: smtest.Consts, Size: 0x1000, Valid: true}
	return interp.NewBlock(l, [3]uint32{}), m
}

func newTwins(x *Executor, code []uint64, threads uint32, args ...uint32) *twins {
	t := new(twins)
	t.slow, t.memory = newBlock(code, threads, args)
	t.fast, t.fastMem = newBlock(code, threads, args)
	for i := smtest.Consts - smtest.Base + 0x100; i < smtest.Local-smtest.Base; i += 4 {
		binary.LittleEndian.PutUint32(t.memory[i:], pool[i/4%len(pool)][i/4%interp.Lanes])
	}
	copy(t.fastMem, t.memory)
	t.executor = x
	x.Start(t.fast.Launch)
	return t
}

// step executes instructions in the fast executor, and as many in the other one. It reports whether
// there may be more.
func (w *twins) step(t *testing.T, budget int) bool {
	w.spent, w.fastFault = w.executor.Step(w.fast, budget)
	n := int(w.fast.Clock - w.slow.Clock)
	if w.fast.Done() || w.fastFault != nil {
		n++
	}
	_, w.fault = w.slow.Step(n)
	if w.fault != nil || w.fastFault != nil {
		require.EqualError(t, w.fastFault, w.fault.Error())
	}
	if d := difference(w.slow.BlockState, w.fast.BlockState); d != "" {
		require.Fail(t, "the executors differ", "%s after %s", d, w.text())
	}
	require.True(t, bytes.Equal(w.memory, w.fastMem), "memory differs")
	return w.fault == nil && !w.slow.Done()
}

// text is the instruction before warp 0's program counter.
func (w *twins) text() string {
	pc := w.slow.Warps[0].PC - 8
	word, _ := w.slow.Launch.Program.Word(pc)
	in, _ := isa.Decode(word, pc)
	return in.String()
}

// difference says in words where two states differ, "" if they do not.
func difference(a, b *interp.BlockState) string {
	for i := range a.Warps {
		v, w := &a.Warps[i], &b.Warps[i]
		for reg := range v.Regs {
			for lane := range v.Regs[reg] {
				if v.Regs[reg][lane] != w.Regs[reg][lane] {
					return fmt.Sprintf("warp %d: $r%d of lane %d: %#x, not %#x", i, reg, lane, w.Regs[reg][lane], v.Regs[reg][lane])
				}
			}
		}
		if !reflect.DeepEqual(v.Stack, w.Stack) || v.Preds != w.Preds || v.Flags != w.Flags || v.PC != w.PC || v.Active != w.Active || v.Exited != w.Exited || v.Wait != w.Wait || v.WaitPC != w.WaitPC || v.WaitBy != w.WaitBy {
			return fmt.Sprintf("warp %d: control or flags: %+v, not %+v", i, control(w), control(v))
		}
	}
	switch {
	case !bytes.Equal(a.Shared, b.Shared):
		return "shared memory"
	case !reflect.DeepEqual(a.Locks, b.Locks) || a.Barriers != b.Barriers:
		return "locks or barriers"
	case a.Clock != b.Clock || a.Turn != b.Turn || a.Left != b.Left:
		return "turns"
	}
	return ""
}

// control is a warp without registers.
func control(w *interp.Warp) any {
	return struct {
		PC, Active, Exited uint32
		Preds              [8]uint32
		Flags              interp.Flags
		Stack              []interp.Entry
		Wait               int8
	}{w.PC, w.Active, w.Exited, w.Preds, w.Flags, w.Stack, w.Wait}
}

var edges = [...]uint32{0, 1 << 31, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x3f800000, ^uint32(0), 0x7fffffff, 0xff800000, 0xffc00001, 0x80000001, 0x4f000000, 31, 32}

// value draws bits that lie near the edges of formats more often than chance would.
func value(r *rand.Rand) uint32 {
	v := r.Uint32()
	switch r.IntN(6) {
	case 0:
		return uint32(int32(v) >> r.IntN(32))
	case 1:
		return edges[r.IntN(len(edges))]
	case 2: // a float near one
		return v&0x80ffffff | 0x3f000000
	case 3: // near the least normal one, or the greatest
		return v&0x80000fff | edges[2+r.IntN(5)]
	}
	return v
}

// pool has random rows: values, addresses that are mapped, in the order of lanes and not.
var pool = func() (rows [512]row) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range rows {
		base, step := uint32(smtest.Data&0xffffffff+r.IntN(64)*16), uint32(4<<r.IntN(3))
		for lane := range rows[i] {
			switch i % 7 {
			case 0:
				rows[i][lane] = base + step*uint32(lane)
			case 1:
				rows[i][lane] = base + 4*uint32(r.IntN(100))
			case 2:
				rows[i][lane] = 1 // the upper half of an address
			case 3:
				rows[i][lane] = uint32(4 * r.IntN(256))
			case 4: // local memory has two parts
				if rows[i][lane] = uint32(4 * r.IntN(64)); r.IntN(2) == 0 {
					rows[i][lane] = uint32(windowSize - 64 + 4*r.IntN(16))
				}
			default:
				rows[i][lane] = value(r)
			}
		}
	}
	return rows
}()

// disturb gives all warps of both blocks the same random state, at an address.
func (w *twins) disturb(r *rand.Rand, pc uint32) {
	for i := range w.slow.Warps {
		v := &w.slow.Warps[i]
		for reg := range isa.Zero {
			v.Regs[reg] = pool[r.IntN(len(pool))]
		}
		for p := range isa.True {
			v.Preds[p] = r.Uint32()
		}
		v.Flags = interp.Flags{Zero: r.Uint32(), Sign: r.Uint32(), Carry: r.Uint32(), Overflow: r.Uint32()}
		v.PC, v.Active, v.Exited, v.Wait, v.Stack = pc, allLanes, 0, interp.NoBarrier, v.Stack[:0]
		if r.IntN(3) == 0 {
			v.Active &= r.Uint32() | 1
		}
		stack := w.fast.Warps[i].Stack
		w.fast.Warps[i] = *v
		w.fast.Warps[i].Stack = stack[:0]
	}
	for _, b := range []*interp.Block{w.slow, w.fast} {
		b.Locks, b.Barriers = nil, [len(b.Barriers)]interp.Barrier{}
	}
}

// Each form does the same in both executors, whatever its operands and lanes are.
func TestForms(t *testing.T) {
	forms, best := isa.Forms(), fast
	defer func() { fast = best }()
	for name, ops := range sets() {
		fast = ops
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			ran, planned := make(map[isa.Op]bool), make(map[isa.Op]bool)
			for _, f := range forms {
				n := scale.Of(120, 3000)
				w := newTwins(new(Executor), smtest.WordsOf(r, f, n), 64)
				for i := range n {
					w.disturb(r, uint32(8*i))
					plan := w.executor.fetch(uint32(8*i)).run != nil
					planned[f.Op] = planned[f.Op] || plan
					w.step(t, 1)
					ran[f.Op] = ran[f.Op] || plan && w.fault == nil && w.spent < costLane
				}
			}
			require.Equal(t, planned, ran, "operations whose fast way never ran")
		})
	}
}

// Programs of random words stay the same step for step.
func TestRandomWords(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	forms := isa.Forms()
	var x Executor
	for i := range scale.Of(3, 100) * len(forms) {
		w := newTwins(&x, smtest.Words(r, forms[i%len(forms)], 20), 48)
		w.disturb(r, 0)
		for range 20 {
			if !w.step(t, 1+r.IntN(100)) {
				break
			}
		}
	}
}

// Programs with divergence, loops and barriers stay the same step for step, and end.
func TestStructured(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var x Executor
	for range scale.Of(100, 5000) {
		text := "mov b32 $r2 $tidx\nmov b32 $r0 $r2\n" + smtest.Structured(r) + "bar popc 0x1 $r1 0x0 0x0 $p0\nadd b32 $r0 $r0 $r1" + smtest.Store
		code, err := isa.Assemble(text)
		require.NoError(t, err)
		w := newTwins(&x, code, 96)
		steps := 0
		for w.step(t, 1+r.IntN(2000)) {
			w.executor.Begin()
			steps++
			require.Less(t, steps, 1_000_000, text)
		}
		require.Nil(t, w.fault, text)
	}
}

// A program that has run once runs again without allocations, whichever way its instructions take.
func TestAllocNothing(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	code, err := isa.Assemble(`
	ld b64 $r4d c0[0x0]
	mov b32 $r1 $tidx
again:
	add b32 $r8 $c $r8 c0[0x10]
	fma rn f32 $r8 $r9 $r10 $r8
	set $p0 0x1 lt u32 $r1 0x10
	joinat end
	$p0 bra side
	sin f32 $r9 $r1
side:
	join nop
end:
	red add u32 g[$r4d] $r8
	bar popc 0x1 0x0 0x0 0x0 0x1
	tex t lzero all dfp $r12:$r13:$r14:$r15 t2d $t0 $s0 $r16:$r17 ()
	suldb b32 $r12 ca zero img[0x1] 2d $r16:$r17
	sustp wb zero img[0x1] 1d $r12 $r12:$r13:$r14:$r15
	bra again`)
	require.NoError(t, err)
	b, _ := newBlock(code, 96, nil)
	b.Launch.Units = new(counting)
	var x Executor
	x.Start(b.Launch)
	step := func() {
		x.Begin()
		_, fault := x.Step(b, 10000)
		require.Nil(t, fault)
	}
	step()
	require.Zero(t, testing.AllocsPerRun(20, step))
	require.Positive(t, b.Launch.Units.(*counting).textures)
	require.Positive(t, b.Launch.Units.(*counting).surfaces)
}

// counting is a unit that counts instructions.
type counting struct{ textures, surfaces int }

func (c *counting) Texture(*interp.Texels) error { c.textures++; return nil }
func (c *counting) Surface(*interp.Pixel) error  { c.surfaces++; return nil }

// endlessCode is a memory that has the same word everywhere.
type endlessCode struct {
	smtest.Memory
	word [8]byte
}

func (m *endlessCode) Load(addr uint64, to []byte) error {
	copy(to, m.word[addr%8:])
	return nil
}

// TestFewOperations: however long a program is, the executor keeps a bounded number of operations, and
// the counts of all.
func TestFewOperations(t *testing.T) {
	const n = 3 * maxCached
	code, err := isa.Assemble("add b32 $r8 $r8 c0[0x10]")
	require.NoError(t, err)
	b, m := newBlock(code, 32, nil)
	end := &endlessCode{Memory: m}
	binary.LittleEndian.PutUint64(end.word[:], code[0])
	b.Launch.Program = &interp.Program{Memory: end}
	var x Executor
	x.Start(b.Launch)
	for b.Clock < n {
		_, fault := x.Step(b, 1000)
		require.Nil(t, fault)
		kept := make(map[*operation]bool)
		for _, o := range x.cache.operations {
			kept[o] = true
		}
		for _, p := range x.code.pages {
			for _, o := range p {
				if o != nil {
					kept[o] = true
				}
			}
		}
		require.LessOrEqual(t, len(kept), maxCached)
	}
	require.Equal(t, map[*isa.Form]uint64{interp.NewCode(code[0], 0).Form: b.Clock}, x.Ran())
}

package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Kernel is a program as IR for a GPU: the function of one thread, with scalars for values and branches for control
// flow. The analysis and the front end are those of Compile; each value is the same in all lanes, of which there is one,
// so no mask, stack or vector is left.
//
// Global memory is one buffer, which has what the launch has from an address on. A kernel checks each access against the
// bounds of that and of shared memory, and ends the thread at one that is wrong. It has no budget: nothing stops a kernel
// that does not end.
//
// Its parameters are the buffer, the address of the buffer's first byte in the launch (64 bits), the bytes of the buffer,
// at least 16 (64 bits), a word of 64 bits for a fault, which is Code<<32 + PC, the bytes of shared memory (32 bits), and
// a structure of the constants.
type Kernel struct {
	IR string
	// Constants are the words of that structure. A launch whose words are larger than the limits needs another kernel.
	Constants []Constant
}

// KernelName is the name of the function.
const KernelName = "kernel"

const kernelParameters = "ptr addrspace(1) %%memory, i64 %%low, i64 %%size, ptr addrspace(1) %%fault, i32 %%shared, ptr byval([%d x i32]) align 4 %%constants"

// CompileKernel translates a program to a kernel. It fails if some form has no code: there is no other executor.
func CompileKernel(front FrontEnd, o Options) (*Kernel, error) {
	t, text, err := translate(front, o, true)
	if err != nil {
		return nil, err
	}
	if len(t.missing) > 0 {
		return nil, fmt.Errorf("kernels have no code for %s", strings.Join(slices.Sorted(maps.Keys(t.missing)), ", "))
	}
	return &Kernel{IR: text, Constants: t.limits}, nil
}

// kernelPrologue starts the function. All registers are zero.
func (b *Builder) kernelPrologue() {
	all := make([]constant, len(b.t.constants))
	for c, n := range b.t.constants {
		all[n] = c
	}
	b.do("@sharedMemory = external addrspace(3) global [0 x i8], align 16")
	b.do("define ptx_kernel void @"+KernelName+"("+kernelParameters+") #0 {", max(1, len(all)))
	b.do("%s", places)
	for n, c := range all {
		at := b.line("getelementptr i32, ptr %%constants, i32 %d", n)
		b.do("%%c%dv = load i32, ptr %s", n, at)
		limit := ^uint32(0)
		if l := b.t.limit(c); l != 0 {
			limit = uint32(l)
		}
		b.t.limits = append(b.t.limits, Constant{c.bank, c.offset, limit})
	}
	k := b.t.first[1]
	live := k.start.or(k.parked)
	for i := range Slot(Slots) {
		if live.has(i) && !k.entry[i].constant() {
			b.do("store %s %s, ptr %s", ty(slotWidth(i)), literal(slotWidth(i), 0), b.at('s', int(i)))
		}
	}
	b.do("br label %%%s", k.label())
}

// kernelEpilogue are the attributes of the function and the size of its blocks.
func (t *translator) kernelEpilogue() string {
	s := t.options.Block
	return fmt.Sprintf(`attributes #0 = { nounwind convergent "no-builtins" }
!nvvm.annotations = !{!0}
!0 = !{ptr @%s, !"reqntidx", i32 %d, !"reqntidy", i32 %d, !"reqntidz", i32 %d}
`, KernelName, s[0], s[1], s[2])
}

// zeroSlot is what a thread starts with.
func zeroSlot(i Slot) *Value { return &Value{Kind: constantKind(0), width: slotWidth(i)} }

// endThread ends the thread, with a fault unless it is done.
func (b *Builder) endThread(code Code, pc uint32) {
	if code != Done {
		b.do("store i64 %d, ptr addrspace(1) %%fault, align 8", uint64(code)<<32|uint64(pc))
	}
	b.do("ret void")
}

// threadBarrier makes the threads of the block wait for each other. It reports false if the barrier is another one.
func (b *Builder) threadBarrier(in *Instruction) bool {
	if !in.Quiet || !in.Guard.Always {
		return false
	}
	b.t.intrinsic("void @llvm.nvvm.barrier.n(i32)")
	b.do("call void @llvm.nvvm.barrier.n(i32 %d)", in.Barrier)
	return true
}

// threadNumber is a special register that counts up to a limit.
func (b *Builder) threadNumber(name string, dim int, low, limit uint32) *Value {
	if low == limit {
		return b.Const(low)
	}
	name = fmt.Sprintf("i32 @llvm.nvvm.read.ptx.sreg.%s.%c()", name, "xyz"[dim])
	b.t.intrinsic("%s", name)
	return b.made(Kind{Min: uint64(low), Max: uint64(limit), NaN: Bits}.normal(), 32, func(bool) string { return b.line("call %s", name) })
}

// threadOf is the number of the thread in its block.
func (b *Builder) threadOf() *Value {
	s := b.t.options.Block
	row := b.Add(b.ThreadID(1), b.Mul(b.ThreadID(2), b.Const(s[1])))
	return b.Add(b.ThreadID(0), b.Mul(row, b.Const(s[0])))
}

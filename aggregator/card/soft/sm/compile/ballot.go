package compile

// Ballot is the lanes of the instruction in which a condition holds, one bit each.
func (b *Builder) Ballot(x *Value) *Value {
	if b.t.kernel {
		b.Refuse("lanes of a thread")
	}
	v := &Value{Kind: Kind{Max: ones(32), NaN: Bits}, width: 32}
	v.s = b.line("and i32 %s, %s", b.lanes.mask, b.maskOf(x))
	return v
}

// Fence orders memory, also for other threads than that of the block.
func (b *Builder) Fence(others bool) {
	if b.t.kernel {
		name := pick(others, "void @llvm.nvvm.membar.gl()", "void @llvm.nvvm.membar.cta()")
		b.t.intrinsic("%s", name)
		b.do("call %s", name)
		return
	}
	b.do("%s", pick(others, "fence seq_cst", `fence syncscope("singlethread") seq_cst`))
}

// Visible gives a float the bits that others see, if it is not a number.
func (b *Builder) Visible(x *Value) *Value { return b.bits(x) }

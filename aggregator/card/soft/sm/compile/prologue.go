package compile

import "fmt"

// Function is the name of the compiled function: void (Context *, state.Warp *).
const Function = "warp"

// prologue starts the function: it makes places for the state, and goes to the block that the context asks
// for.
func (b *Builder) prologue() {
	b.do("define void @%s(ptr noalias %%c, ptr noalias %%w) #0 {", Function)
	b.do("%s", places)
	b.do("%%active = alloca i32\n%%exited = alloca i32\n%%spent = alloca i64")
	active := b.fromWarp("i32", "Active", 0)
	b.do("store i32 %s, ptr %%active", active)
	b.do("store i32 %s, ptr %%exited", b.fromWarp("i32", "Exited", 0))
	b.do("store i64 %s, ptr %%spent", b.fromContext("i64", "Spent", 0))
	first := b.line("call i32 @llvm.cttz.i32(i32 %s, i1 false)", active)
	first = b.line("and i32 %s, 31", first)
	b.t.intrinsic("i32 @llvm.cttz.i32(i32, i1)")
	b.findConstants()
	starts := b.t.starting()
	site := b.fromWarp("i32", "Site", 0)
	b.do("switch i32 %s, label %%bad [", site)
	for n := range starts {
		b.do("i32 %d, label %%e%d", n, n)
	}
	b.do("]")
	b.place("bad")
	b.toWarp("i32", literal(32, uint64(BadSite)), "Site", 0)
	b.do("ret void")
	for n, k := range starts {
		b.do("e%d:", n)
		b.restore(k, first)
	}
}

// places stands for the declarations of what the state is kept in, which are known last.
const places = ";places"

// at names memory of the function: of a slot as a scalar (s) or vector (v), of two registers (w), or of the
// lanes of an entry of the stack (k).
func (b *Builder) at(kind byte, i int) string {
	name := fmt.Sprintf("%%%c%d", kind, i)
	if b.emit {
		typ := map[byte]string{'s': "i32", 'v': "<32 x i32>", 'w': "i64", 'k': "i32"}[kind]
		if kind != 'k' && Slot(i).boolean() {
			typ = map[byte]string{'s': "i1", 'v': "i32"}[kind]
		}
		b.t.places[name+" = alloca "+typ] = true
	}
	return name
}

// restore reads the state at the start of a block. What is uniform there is so in the active lanes.
func (b *Builder) restore(k *block, first string) {
	for i := range k.stack {
		b.do("store i32 %s, ptr %s", b.fromWarp("i32", "Stack", stackLanes(i)), b.at('k', int(i)))
	}
	live := k.start.or(k.parked)
	for i := range Slot(Slots) {
		kind := k.entry[i]
		if i < Registers && k.wide[i/2].ok {
			if i%2 == 0 && !k.wide[i/2].constant() {
				b.restoreWide(i, k.wide[i/2].Kind, first)
			}
			continue
		}
		if !live.has(i) || kind.constant() {
			continue
		}
		if i.boolean() {
			b.restoreBoolean(i, kind, first)
			continue
		}
		at := int(i) * Lanes * 4
		if kind.Shape == Vector {
			b.do("store <32 x i32> %s, ptr %s", b.fromWarp("<32 x i32>", "Regs", at), b.at('v', int(i)))
			continue
		}
		row := b.warpField("Regs", at)
		v := b.line("load i32, ptr %s", b.line("getelementptr i32, ptr %s, i32 %s", row, first))
		if kind.Shape == Affine {
			v = b.line("sub i32 %s, %s", v, b.distance(first, kind, 32))
		}
		b.do("store i32 %s, ptr %s", v, b.at('s', int(i)))
	}
	b.do("br label %%%s", k.label())
}

func (b *Builder) restoreWide(i Slot, kind Kind, first string) {
	var half [2]string
	for n := range half {
		row := b.warpField("Regs", (int(i)+n)*Lanes*4)
		v := b.line("load i32, ptr %s", b.line("getelementptr i32, ptr %s, i32 %s", row, first))
		half[n] = b.line("zext i32 %s to i64", v)
	}
	v := b.line("or i64 %s, %s", half[0], b.line("shl i64 %s, 32", half[1]))
	b.do("store i64 %s, ptr %s", b.line("sub i64 %s, %s", v, b.distance(first, kind, 64)), b.at('w', int(i)))
}

// distance is that of a lane from lane 0.
func (b *Builder) distance(lane string, k Kind, width uint8) string {
	within, other := b.line("and i32 %s, %d", lane, half-1), b.line("lshr i32 %s, 4", lane)
	if width == 64 {
		within, other = b.line("zext i32 %s to i64", within), b.line("zext i32 %s to i64", other)
	}
	typ := ty(width)
	return b.line("add %s %s, %s", typ, b.line("mul %s %s, %s", typ, within, literal(width, k.Stride)), b.line("mul %s %s, %s", typ, other, literal(width, k.Step)))
}

func (b *Builder) restoreBoolean(i Slot, kind Kind, first string) {
	field, n := "Preds", int(i-FirstPred)
	if i >= FirstFlag {
		field, n = "Flags", int(i-FirstFlag)
	}
	mask := b.fromWarp("i32", field, 4*n)
	if kind.Shape == Vector {
		b.do("store i32 %s, ptr %s", mask, b.at('v', int(i)))
		return
	}
	bit := b.line("trunc i32 %s to i1", b.line("lshr i32 %s, %s", mask, first))
	b.do("store i1 %s, ptr %s", bit, b.at('s', int(i)))
}

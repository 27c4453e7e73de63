package compile

import (
	"fmt"
	"slices"
	"strings"
)

// Helpers are functions of IR for accesses whose lanes are not side by side in one page. They read the
// addresses from the context. They check all lanes before they touch memory, so that an access can be
// repeated from its start, and return whether it was allowed. They are the same for all programs, so a
// process compiles them once.

// helperNames are the operation and the size of an access.
var helperNames = [...]string{
	"load1", "load2", "load4", "load8", "load16", "store1", "store2", "store4", "store8", "store16",
	"add4", "umin4", "umax4", "uinc_wrap4", "udec_wrap4", "and4", "or4", "xor4", "min4", "max4", "xchg4", "swap4",
	"lock", "unlock",
}

// accesses are how many of them access memory by addresses.
const accesses = len(helperNames) - 2

// HelperNames returns the functions of Support that a context has to have, in its order.
func HelperNames() []string { return slices.Clone(helperNames[:]) }

// common is what each module has: the look-up of a page.
func common() string {
	var s strings.Builder
	fmt.Fprintf(&s, `
define internal i64 @page(ptr %%c, i64 %%addr, i64 %%align, i64 %%right) alwaysinline {
  %%high = lshr i64 %%addr, %d
  %%odd = and i64 %%addr, %%align
  %%wrong = or i64 %%high, %%odd
  %%can = icmp eq i64 %%wrong, 0
  br i1 %%can, label %%look, label %%no
look:
  %%at = getelementptr i8, ptr %%c, i64 %d
  %%pages = load ptr, ptr %%at
  %%n = lshr i64 %%addr, %d
  %%slot = getelementptr i64, ptr %%pages, i64 %%n
  %%entry = load i64, ptr %%slot
  %%has = and i64 %%entry, %%right
  %%may = icmp ne i64 %%has, 0
  %%host = and i64 %%entry, -4096
  %%low = and i64 %%addr, 4095
  %%sum = or i64 %%host, %%low
  %%out = select i1 %%may, i64 %%sum, i64 0
  ret i64 %%out
no:
  ret i64 0
}
attributes #0 = { nounwind "no-builtins" }
`, AddressBits, offsetOf("Pages"), PageBits)
	return s.String()
}

// Support is the module that all programs of a process share: helpers, and the function Blocks.
func Support() string {
	var s strings.Builder
	s.WriteString(common())
	s.WriteString(`
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.usub.sat.i64(i64, i64)
declare i64 @llvm.vector.reduce.or.v32i64(<32 x i64>)
`)
	for _, unit := range []string{"i8", "i16", "i32"} {
		fmt.Fprintf(&s, "declare <32 x %[1]s> @llvm.masked.gather.v32%[1]s.v32p0(<32 x ptr>, i32, <32 x i1>, <32 x %[1]s>)\n", unit)
		fmt.Fprintf(&s, "declare void @llvm.masked.scatter.v32%[1]s.v32p0(<32 x %[1]s>, <32 x ptr>, i32, <32 x i1>)\n", unit)
	}
	s.WriteString(locate())
	for _, name := range helperNames[:accesses] {
		var size int
		op := strings.TrimRight(name, "0123456789")
		fmt.Sscan(name[len(op):], &size)
		right := pick(op == "load", PageReadable, PageWritable)
		fmt.Fprintf(&s, `
define i1 @%s(ptr %%c, i32 %%mask) #0 {
  %%ok = call i1 @locate(ptr %%c, i32 %%mask, i64 %d, i64 %d)
  br i1 %%ok, label %%go, label %%no
no:
  ret i1 false
go:
  %%addrs = getelementptr i8, ptr %%c, i64 %d
  %%data = getelementptr i8, ptr %%c, i64 %d
`, name, size-1, right, offsetOf("Addr"), offsetOf("Data"))
		switch op {
		case "load":
			fmt.Fprintf(&s, "  %%count = call i32 @llvm.ctpop.i32(i32 %%mask)\n  %%single = icmp ule i32 %%count, %d\n  br i1 %%single, label %%some, label %%all\nall:\n%s", few, gathers(size))
			s.WriteString(eachLane(moved(size, true)))
		case "store":
			fmt.Fprintf(&s, "  %%full = icmp eq i32 %%mask, -1\n  br i1 %%full, label %%all, label %%some\nall:\n%s", scatters(size))
			s.WriteString(eachLane(moved(size, false)))
		default:
			s.WriteString("  br label %some\n")
			s.WriteString(eachLane(atomically(op)))
		}
		s.WriteString("}\n")
	}
	s.WriteString(withFields(blocksText + partsText))
	s.WriteString(withFields(locksText))
	return s.String()
}

// helper emits the call of a helper. It stops the code if the access is not allowed.
func (b *Builder) helper(name string) {
	n := slices.Index(helperNames[:], name)
	if n < 0 {
		panic("compile: no helper " + name)
	}
	f := b.fromContext("ptr", "Helpers", 8*n)
	b.require(b.line("call i1 %s(ptr %%c, i32 %s)", f, b.lanes.mask))
}

// few is how many lanes are looked up and read one after the other: for so many, vectors take longer.
const few = 16

// locate makes host addresses of the addresses in the context, page by page, and charges what that costs.
// Lanes that are not in the mask get the address of one that is, if more than a few are.
func locate() string {
	return expand(`
define internal i1 @locate(ptr %c, i32 %mask, i64 %align, i64 %right) noinline #0 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %yes, label %start
start:
  %bp = getelementptr i8, ptr %c, i64 $Context.Budget
  %budget = load i64, ptr %bp
  %count = call i32 @llvm.ctpop.i32(i32 %mask)
  %count64 = zext i32 %count to i64
  %left = call i64 @llvm.usub.sat.i64(i64 %budget, i64 %count64)
  store i64 %left, ptr %bp
  %addrs = getelementptr i8, ptr %c, i64 $Context.Addr
  %single = icmp ule i32 %count, $few
  br i1 %single, label %each, label %vectors
vectors:
  %av = load <32 x i64>, ptr %addrs, align 8
  %lanes = bitcast i32 %mask to <32 x i1>
  %alignv0 = insertelement <32 x i64> poison, i64 %align, i32 0
  %alignv = shufflevector <32 x i64> %alignv0, <32 x i64> poison, <32 x i32> zeroinitializer
  %lows = and <32 x i64> %av, %alignv
  %lows2 = select <32 x i1> %lanes, <32 x i64> %lows, <32 x i64> zeroinitializer
  %odd = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %lows2)
  %aligned = icmp eq i64 %odd, 0
  br i1 %aligned, label %first, label %no
first:
  %numbers = lshr <32 x i64> %av, $splat12
  %offsets = and <32 x i64> %av, $splat4095
  br label %page
page:
  %m = phi i32 [ %mask, %first ], [ %rest, %found ]
  %hv = phi <32 x i64> [ zeroinitializer, %first ], [ %hv2, %found ]
  %tries = phi i32 [ 0, %first ], [ %tries2, %found ]
  %lane = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %at = getelementptr i64, ptr %addrs, i32 %lane
  %addr = load i64, ptr %at
  %h = call i64 @page(ptr %c, i64 %addr, i64 0, i64 %right)
  %bad = icmp eq i64 %h, 0
  br i1 %bad, label %no, label %found
found:
  %base = and i64 %h, -4096
  %base0 = insertelement <32 x i64> poison, i64 %base, i32 0
  %basev = shufflevector <32 x i64> %base0, <32 x i64> poison, <32 x i32> zeroinitializer
  %n = lshr i64 %addr, 12
  %n0 = insertelement <32 x i64> poison, i64 %n, i32 0
  %nv = shufflevector <32 x i64> %n0, <32 x i64> poison, <32 x i32> zeroinitializer
  %same = icmp eq <32 x i64> %numbers, %nv
  %there = or <32 x i64> %basev, %offsets
  %hv2 = select <32 x i1> %same, <32 x i64> %there, <32 x i64> %hv
  %samei = bitcast <32 x i1> %same to i32
  %not = xor i32 %samei, -1
  %rest = and i32 %m, %not
  %tries2 = add i32 %tries, 1
  %ended = icmp eq i32 %rest, 0
  %many = icmp uge i32 %tries2, 4
  %stop = or i1 %ended, %many
  br i1 %stop, label %placed, label %page
placed:
  %h0 = insertelement <32 x i64> poison, i64 %h, i32 0
  %h0v = shufflevector <32 x i64> %h0, <32 x i64> poison, <32 x i32> zeroinitializer
  %hv3 = select <32 x i1> %lanes, <32 x i64> %hv2, <32 x i64> %h0v
  br i1 %ended, label %good, label %slow
good:
  store <32 x i64> %hv3, ptr %addrs, align 8
  ret i1 true
slow:
  %old = bitcast i32 %rest to <32 x i1>
  %mixed = select <32 x i1> %old, <32 x i64> %av, <32 x i64> %hv3
  store <32 x i64> %mixed, ptr %addrs, align 8
  br label %each
each:
  %m2 = phi i32 [ %mask, %start ], [ %rest, %slow ], [ %rest3, %next ]
  %lane2 = call i32 @llvm.cttz.i32(i32 %m2, i1 true)
  %at2 = getelementptr i64, ptr %addrs, i32 %lane2
  %addr2 = load i64, ptr %at2
  %h2 = call i64 @page(ptr %c, i64 %addr2, i64 %align, i64 %right)
  %bad2 = icmp eq i64 %h2, 0
  br i1 %bad2, label %no, label %next
next:
  store i64 %h2, ptr %at2
  %less = add i32 %m2, -1
  %rest3 = and i32 %m2, %less
  %ended2 = icmp eq i32 %rest3, 0
  br i1 %ended2, label %yes, label %each
yes:
  ret i1 true
no:
  ret i1 false
}
`)
}

// gathers reads words of all lanes: those that do not count read what another one reads.
func gathers(size int) string {
	var s strings.Builder
	typ, words := element(size)
	s.WriteString("  %hosts = load <32 x ptr>, ptr %addrs, align 8\n")
	for w := range words {
		fmt.Fprintf(&s, "  %%p%d = getelementptr i8, <32 x ptr> %%hosts, i64 %d\n", w, 4*w)
		fmt.Fprintf(&s, "  %%x%d = call <32 x %[2]s> @llvm.masked.gather.v32%[2]s.v32p0(<32 x ptr> %%p%[1]d, i32 %[3]d, <32 x i1> %[4]s, <32 x %[2]s> poison)\n", w, typ, min(size, 4), allTrue)
		v := fmt.Sprintf("%%x%d", w)
		if size < 4 {
			fmt.Fprintf(&s, "  %%y = zext <32 x %s> %s to <32 x i32>\n", typ, v)
			v = "%y"
		}
		fmt.Fprintf(&s, "  %%d%[1]d = getelementptr i8, ptr %%data, i64 %[2]d\n  store <32 x i32> %[3]s, ptr %%d%[1]d, align 4\n", w, 4*Lanes*w, v)
	}
	s.WriteString("  ret i1 true\n")
	return s.String()
}

// allTrue is a mask of all lanes.
var allTrue = "<" + strings.TrimSuffix(strings.Repeat("i1 true, ", Lanes), ", ") + ">"

// scatters writes words of all lanes, in the order of the lanes.
func scatters(size int) string {
	var s strings.Builder
	typ, words := element(size)
	s.WriteString("  %hosts = load <32 x ptr>, ptr %addrs, align 8\n")
	for w := range words {
		fmt.Fprintf(&s, "  %%ps%d = getelementptr i8, <32 x ptr> %%hosts, i64 %d\n", w, 4*w)
		fmt.Fprintf(&s, "  %%ds%[1]d = getelementptr i8, ptr %%data, i64 %[2]d\n  %%xs%[1]d = load <32 x i32>, ptr %%ds%[1]d, align 4\n", w, 4*Lanes*w)
		v := fmt.Sprintf("%%xs%d", w)
		if size < 4 {
			fmt.Fprintf(&s, "  %%ys = trunc <32 x i32> %s to <32 x %s>\n", v, typ)
			v = "%ys"
		}
		fmt.Fprintf(&s, "  call void @llvm.masked.scatter.v32%[1]s.v32p0(<32 x %[1]s> %[2]s, <32 x ptr> %%ps%[3]d, i32 %[4]d, <32 x i1> %[5]s)\n", typ, v, w, min(size, 4), allTrue)
	}
	s.WriteString("  ret i1 true\n")
	return s.String()
}

// moved is what a load or a store does in a lane.
func moved(size int, load bool) string {
	unit := min(size, 4)
	short := ty(uint8(8 * unit))
	var s strings.Builder
	for w := range max(1, size/4) {
		fmt.Fprintf(&s, "  %%lp%[1]d = getelementptr i8, ptr %%host, i64 %[2]d\n  %%ld%[1]d = getelementptr [%[3]d x i32], ptr %%data, i64 %[1]d, i32 %%lane2\n", w, 4*w, Lanes)
		switch { // a conversion to the same type is not allowed
		case unit == 4:
			from, to := pick(load, "lp", "ld"), pick(load, "ld", "lp")
			fmt.Fprintf(&s, "  %%lx%[1]d = load i32, ptr %%%[2]s%[1]d\n  store i32 %%lx%[1]d, ptr %%%[3]s%[1]d\n", w, from, to)
		case load:
			fmt.Fprintf(&s, "  %%lx = load %[1]s, ptr %%lp0\n  %%ly = zext %[1]s %%lx to i32\n  store i32 %%ly, ptr %%ld0\n", short)
		default:
			fmt.Fprintf(&s, "  %%lx = load i32, ptr %%ld0\n  %%ly = trunc i32 %%lx to %[1]s\n  store %[1]s %%ly, ptr %%lp0\n", short)
		}
	}
	return s.String()
}

// atomically is what an atomic operation does in a lane.
func atomically(op string) string {
	s := "  %d = getelementptr i32, ptr %data, i32 %lane2\n  %x = load i32, ptr %d\n"
	if op == "swap" {
		return s + fmt.Sprintf(`  %%e = getelementptr [%d x i32], ptr %%data, i64 1, i32 %%lane2
  %%y = load i32, ptr %%e
  %%both = cmpxchg ptr %%host, i32 %%x, i32 %%y seq_cst seq_cst
  %%old = extractvalue { i32, i1 } %%both, 0
  store i32 %%old, ptr %%d
`, Lanes)
	}
	return s + fmt.Sprintf("  %%old = atomicrmw %s ptr %%host, i32 %%x seq_cst\n  store i32 %%old, ptr %%d\n", op)
}

// eachLane does something lane after lane.
func eachLane(move string) string {
	return fmt.Sprintf(`some:
  br label %%next
next:
  %%m2 = phi i32 [ %%mask, %%some ], [ %%rest2, %%move ]
  %%ended2 = icmp eq i32 %%m2, 0
  br i1 %%ended2, label %%done, label %%move
move:
  %%lane2 = call i32 @llvm.cttz.i32(i32 %%m2, i1 true)
  %%at2 = getelementptr i64, ptr %%addrs, i32 %%lane2
  %%h2 = load i64, ptr %%at2
  %%host = inttoptr i64 %%h2 to ptr
%s  %%less2 = add i32 %%m2, -1
  %%rest2 = and i32 %%m2, %%less2
  br label %%next
done:
  ret i1 true
`, move)
}

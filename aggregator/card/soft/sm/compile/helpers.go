package compile

import (
	"fmt"
	"strings"
)

// Helpers are functions of IR for accesses whose lanes are not side by side in one page. They read the
// addresses from the context. They check all lanes before they touch memory, so that an access can be
// repeated from its start, and return whether it was allowed. A module has those that it calls.

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
attributes #1 = { nounwind noinline "no-builtins" }
`, AddressBits, offsetOf("Pages"), PageBits)
	return s.String()
}

// helper emits the call of a helper, which the module then has. It stops the code if the access is not
// allowed.
func (b *Builder) helper(name string, size, right int, move string) {
	name = fmt.Sprintf("%s%d", name, size)
	if b.t.helpers[name] == "" {
		b.t.helpers[name] = helperText(name, size, right, move)
	}
	b.require(b.line("call i1 @%s(ptr %%c, i32 %s)", name, b.lanes.mask))
}

// moved is what a load or store does in a lane.
func moved(name string, size int) string {
	unit, words := min(size, 4), max(1, size/4)
	var move strings.Builder
	for w := range words {
		fmt.Fprintf(&move, `  %%p%[1]d = getelementptr i8, ptr %%host, i64 %[2]d
  %%d%[1]d = getelementptr [%[3]d x i32], ptr %%data, i64 %[1]d, i32 %%lane2
`, w, 4*w, Lanes)
		typ := ty(uint8(8 * unit))
		switch {
		case name == "load" && unit == 4:
			fmt.Fprintf(&move, "  %%x%[1]d = load i32, ptr %%p%[1]d\n  store i32 %%x%[1]d, ptr %%d%[1]d\n", w)
		case name == "load":
			fmt.Fprintf(&move, "  %%x%[1]d = load %[2]s, ptr %%p%[1]d\n  %%y%[1]d = zext %[2]s %%x%[1]d to i32\n  store i32 %%y%[1]d, ptr %%d%[1]d\n", w, typ)
		case unit == 4:
			fmt.Fprintf(&move, "  %%x%[1]d = load i32, ptr %%d%[1]d\n  store i32 %%x%[1]d, ptr %%p%[1]d\n", w)
		default:
			fmt.Fprintf(&move, "  %%x%[1]d = load i32, ptr %%d%[1]d\n  %%y%[1]d = trunc i32 %%x%[1]d to %[2]s\n  store %[2]s %%y%[1]d, ptr %%p%[1]d\n", w, typ)
		}
	}
	return move.String()
}

// helperText is a function that checks the lanes, and then does something in each.
func helperText(name string, size, right int, move string) string {
	return fmt.Sprintf(`
define internal i1 @%[1]s(ptr %%c, i32 %%mask) #1 {
  %%addrs = getelementptr i8, ptr %%c, i64 %[2]d
  %%data = getelementptr i8, ptr %%c, i64 %[3]d
  br label %%check
check:
  %%m = phi i32 [ %%mask, %%0 ], [ %%rest, %%found ]
  %%ended = icmp eq i32 %%m, 0
  br i1 %%ended, label %%go, label %%look
look:
  %%lane = call i32 @llvm.cttz.i32(i32 %%m, i1 true)
  %%at = getelementptr i64, ptr %%addrs, i32 %%lane
  %%addr = load i64, ptr %%at
  %%h = call i64 @page(ptr %%c, i64 %%addr, i64 %[4]d, i64 %[5]d)
  %%bad = icmp eq i64 %%h, 0
  br i1 %%bad, label %%no, label %%found
found:
  store i64 %%h, ptr %%at
  %%less = add i32 %%m, -1
  %%rest = and i32 %%m, %%less
  br label %%check
no:
  ret i1 false
go:
  %%m2 = phi i32 [ %%mask, %%check ], [ %%rest2, %%move ]
  %%ended2 = icmp eq i32 %%m2, 0
  br i1 %%ended2, label %%done, label %%move
move:
  %%lane2 = call i32 @llvm.cttz.i32(i32 %%m2, i1 true)
  %%at2 = getelementptr i64, ptr %%addrs, i32 %%lane2
  %%h2 = load i64, ptr %%at2
  %%host = inttoptr i64 %%h2 to ptr
%[6]s  %%less2 = add i32 %%m2, -1
  %%rest2 = and i32 %%m2, %%less2
  br label %%go
done:
  ret i1 true
}
`, name, offsetOf("Addr"), offsetOf("Data"), size-1, right, move)
}

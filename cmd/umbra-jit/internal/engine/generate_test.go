package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// shapes are control flow around a body, %[2]s: %[1]s is the start of its labels, and %[3]s sets $p0 otherwise in each lane.
var shapes = []string{
	`and b32 $r9 $r2 0x3
prebrk %[1]send
%[1]s:
set $p0 0x1 eq u32 $r9 0x0
$p0 brk
sub b32 $r9 $r9 0x1
%[2]sbra %[1]s
%[1]send:
`,
	`and b32 $r10 $r2 0x3
prebrk %[1]send
%[1]s:
precont %[1]s
set $p0 0x1 eq u32 $r10 0x0
$p0 brk
sub b32 $r10 $r10 0x1
%[3]s(not $p0) cont
%[2]scont
%[1]send:
`,
	`and b32 $r11 $r2 0x3
%[1]s:
%[2]ssub b32 $r11 $r11 0x1
set $p0 0x1 gt s32 $r11 0x0
$p0 bra %[1]s
`,
	"joinat %[1]s\n%[3]sjoin (not $p0) nop\n%[2]sjoin nop\n%[1]s:\n",
	"joinat %[1]s\n%[3]s$p0 bra %[1]selse\n%[2]sjoin nop\n%[1]selse:\nadd b32 $r0 $r0 0x5\njoin nop\n%[1]s:\n",
	"preret %[1]s\n%[3]s$p0 ret\n%[2]sret\n%[1]s:\n",
	"%[3]s$p0 exit\n%[2]s",
	"%[3]s$p0 add b32 $r0 $r0 0x55\n%[2]s",
}

// Some shapes, by number: a loop up to a constant is one more, and two make much code of their own.
const (
	doLoop  = 2
	exits   = 6
	counter = 8
)

// The shapes of most programs, and of those that go back.
var (
	usual = []int{0, 1, 3, 4, 5, 7, counter, 0, 3, 4}
	loops = []int{0, 1, counter}
)

// shaped makes one shape, with a piece or another shape in its body.
func shaped(r *rand.Rand, label string, loop bool) string {
	n := usual[r.IntN(len(usual))]
	if loop {
		n = loops[r.IntN(len(loops))]
	}
	body := fmt.Sprintf("add $r0 (mul u32 $r0 u32 0x3) $r0\nadd b32 $r0 $r0 %#x\n", 1+r.IntN(255))
	switch k := r.IntN(32); {
	case k == 0:
		n = doLoop
	case k == 1 && !loop:
		n = exits
	case k == 2 && n != counter:
		body += shaped(r, label+"i", false)
	case k < 8:
		body += pieces[r.IntN(len(pieces))] + "\n"
	}
	if n == counter {
		return counted(r, len(label))
	}
	condition := fmt.Sprintf("and b32 $r1 $r2 %#x\nxor b32 $r1 $r1 $r0\nand b32 $r1 $r1 0x7\nset $p0 0x1 %s u32 $r1 %#x\n",
		1+r.IntN(31), [...]string{"lt", "eq", "ge", "ne"}[r.IntN(4)], r.IntN(7))
	return fmt.Sprintf(shapes[n], label, body, condition)
}

// insert puts pieces, and no more loops than one, into lines that are structured.
func insert(r *rand.Rand, lines []string, pieces []string) (text string) {
	loops := 0
	for _, line := range lines {
		text += line + "\n"
		if strings.HasPrefix(line, "add b32 $r0 $r0") && r.IntN(2) == 0 {
			text += pieces[r.IntN(len(pieces))] + "\n"
		}
		if strings.HasPrefix(line, "add b32 $r0 $r0") && loops == 0 && r.IntN(4) == 0 {
			loops++
			text += counted(r, loops)
		}
	}
	return text
}

// farthest is as far as a loop goes by a constant that is known to be of 8 bits.
const farthest = 255

// maxLines bounds a program: what is longer takes LLVM's time, and most of it goes on in interp.
const maxLines = 100

// structured makes lines with control flow. With loop one of them goes back.
func structured(r *rand.Rand, loop bool) []string {
	for {
		text := smtest.Structured(r)
		if lines := strings.Split(text, "\n"); len(lines) <= maxLines && (!loop || strings.Contains(text, "precont")) {
			return lines
		}
	}
}

// setup defines what a body reads: $r2 is the thread's number, and $r0 depends on it. Each thread has its own address of
// the data in $r60d, and of shared memory in $r59. Those of its row are in $r48d and $r55, and its own in the row in $r56.
func setup(r *rand.Rand, body string) string {
	text := fmt.Sprintf("mov b32 $r2 $tidx\nadd b32 $r0 $r2 %#x\n", r.Uint32N(1<<19))
	uses := func(names ...string) bool {
		for _, name := range names {
			if strings.Contains(body, name) {
				return true
			}
		}
		return false
	}
	if uses("$r48d", "$r55", "$r56") {
		text += `mov b32 $r54 $tid
ext u32 $r53 $r54 0x1000
ext u32 $r52 $r54 0xa10
shl b32 $r55 $r52 clamp 0x6
shl b32 $r51 $r53 clamp 0x2
add b32 $r56 $r55 $r51
`
	}
	if uses("$r59") {
		text += "shl b32 $r59 $r2 clamp 0x2\n"
	}
	if !uses("$r48d", "$r57", "$r60d") {
		return text
	}
	if r.IntN(4) == 0 {
		text += "ld b64 $r60d c0[0x0]\nmov b32 $r58 $r60\nmov b32 $r57 $r61\n"
	} else { // much less for LLVM
		text += fmt.Sprintf("mov b32 $r58 %#x\nmov b32 $r57 %#x\n", smtest.Data&(1<<32-1), smtest.Data>>32)
	}
	if uses("$r48d") {
		text += "add b32 $r48 $c $r55 $r58\nadd b32 $r49 0x0 $r57 $c\n"
	}
	return text + "add b32 $r60 $c (shl $r2 0x2) $r58\nadd b32 $r61 $r57 0x0 $c\n"
}

// kernel makes the text of a program that knows nothing of other threads. It may begin with a loop that all lanes are in.
func kernel(r *rand.Rand, loop bool) string {
	body := ""
	if r.IntN(3) == 0 {
		body += nested
	}
	if loop {
		body += counted(r, 0)
	}
	body += insert(r, structured(r, false), uniform)
	return setup(r, body) + body + barriers[1] + smtest.Store
}

// A generated program has a number, and a launch.
type generated struct {
	text   string
	size   [3]uint32
	blocks uint32
	args   [2]uint32 // constants, of which the first bounds loops
	passes string
	moves  bool // it is stopped at each back edge
}

// generate makes the program of a number. Most have one shape, for LLVM takes a millisecond for each line, and more in
// control flow. Few are much longer.
func generate(r *rand.Rand, number int) *generated {
	g := &generated{
		size:   [...][3]uint32{{96, 1, 1}, {32, 3, 1}, {16, 4, 1}, {16, 6, 1}, {32, 1, 1}}[r.IntN(5)],
		blocks: 1 + uint32(r.IntN(4)/3),
		args:   [2]uint32{[...]uint32{0, 0, 3, farthest}[r.IntN(4)], r.Uint32()},
		passes: [...]string{llvm.Quick, llvm.Full}[r.IntN(2)],
		moves:  number%3 == 0,
	}
	switch r.IntN(10) {
	case 0:
		g.size = [...][3]uint32{{80, 1, 1}, {16, 5, 1}}[r.IntN(2)] // LLVM makes everything twice
	case 1:
		g.size = [...][3]uint32{{13, 1, 1}, {5, 3, 2}}[r.IntN(2)]
	}
	body := ""
	switch {
	case number%256 == 1:
		g.args[0] = farthest
		body = counted(r, 0) + insert(r, structured(r, false), pieces)
	case number%256 == 3:
		body = insert(r, structured(r, g.moves), pieces)
	case number%64 == 5:
		body = nested
	default:
		body = shaped(r, "l", g.moves)
	}
	piece := func() string { return pieces[r.IntN(len(pieces))] + "\n" }
	switch r.IntN(4) {
	case 0:
	case 1:
		body = piece() + piece() + body
	default:
		body = piece() + body
	}
	if r.IntN(3) == 0 {
		body += barriers[r.IntN(len(barriers))]
		if r.IntN(2) == 0 {
			body += piece()
		}
	}
	switch r.IntN(32) {
	case 0:
		body += smtest.Store
	case 1, 2, 3, 4, 5:
		body += "st b32 wb g[$r60d] $r0\nexit"
	default: // fewer registers that live all the way
		body += "shl b32 $r50 $r2 clamp 0x2\nst b32 s[$r50] $r0\nexit"
	}
	g.text = setup(r, body) + body
	return g
}

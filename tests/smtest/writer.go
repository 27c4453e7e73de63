package smtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Structured makes the text of a random program with structured control flow in which $r0 changes; the
// lanes take ways that depend on $r2.
func Structured(r *rand.Rand) string {
	w := &writer{random: r}
	w.block()
	return w.String() // at depth 1 there are no early ends
}

// Store is the end of programs: each thread stores $r0 in the data at its own word.
const Store = `
	mov b32 $r62 $tidx
	ld b64 $r60d c0[0x0]
	add b32 $r60 $c (shl $r62 0x2) $r60
	add b32 $r61 $r61 0x0 $c
	st b32 wb g[$r60d] $r0
	exit
`

// A writer makes structured programs as compilers do: joinat and join around ifs, prebrk, precont,
// brk and cont around loops, exits in between.
type writer struct {
	strings.Builder
	random *rand.Rand
	labels int
	loops  int // around the place
	depth  int
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *writer) label() string {
	w.labels++
	return fmt.Sprintf("l%d", w.labels)
}

var compares = [...]string{"lt", "eq", "ge", "ne"}

// condition sets $p0 from the thread's number and its state, so that warps diverge.
func (w *writer) condition() {
	w.line("and b32 $r1 $r2 %#x", 1+w.random.IntN(31))
	w.line("xor b32 $r1 $r1 $r0")
	w.line("and b32 $r1 $r1 0x7")
	w.line("set $p0 0x1 %s u32 $r1 %#x", compares[w.random.IntN(len(compares))], w.random.IntN(7))
}

func (w *writer) work() { w.line("add $r0 (mul u32 $r0 u32 0x3) $r0\nadd b32 $r0 $r0 %#x", w.labels+1) }

func (w *writer) block() {
	w.depth++
	defer func() { w.depth-- }()
	for range 1 + w.random.IntN(3) {
		kind := w.random.IntN(7)
		if w.depth > 4 {
			kind = 0
		}
		switch kind {
		case 0:
			w.work()
		case 1:
			w.branch()
		case 2:
			w.joinIf()
		case 3:
			w.loop()
		case 4, 5:
			if w.loops > 0 {
				w.condition()
				w.line("$p0 %s", map[int]string{4: "brk", 5: "cont"}[kind])
			}
		case 6:
			if w.depth > 1 {
				w.condition()
				w.line("$p0 bra end%d", w.depth) // leaves the block early, inside its join
			}
		}
	}
}

// branch is an if with two sides. Both join at the end.
func (w *writer) branch() {
	other, end := w.label(), w.label()
	w.line("joinat %s", end)
	w.condition()
	w.line("$p0 bra %s", other)
	w.side()
	w.line("join nop\n%s:", other)
	w.side()
	w.line("join nop\n%s:", end)
}

// side is a block whose early end is the join behind it.
func (w *writer) side() {
	body := &writer{random: w.random, labels: w.labels, loops: w.loops, depth: w.depth}
	body.block()
	w.labels = body.labels
	end := w.label()
	text := strings.ReplaceAll(body.String(), fmt.Sprintf("end%d\n", body.depth+1), end+"\n")
	w.WriteString(text)
	w.line("%s:", end)
}

// joinIf lets some lanes join early, with a predicate.
func (w *writer) joinIf() {
	end := w.label()
	w.line("joinat %s", end)
	w.condition()
	w.line("join (not $p0) nop")
	w.side()
	w.line("join nop\n%s:", end)
}

// loop counts down in a local variable of its depth.
func (w *writer) loop() {
	head, end := w.label(), w.label()
	counter := 8 + w.depth
	w.line("and b32 $r%d $r2 0x3", counter)
	w.line("prebrk %s\n%s:\nprecont %s", end, head, head)
	w.line("set $p0 0x1 eq u32 $r%d 0x0\n$p0 brk", counter)
	w.line("sub b32 $r%d $r%d 0x1", counter, counter)
	w.loops++
	w.side()
	w.loops--
	w.line("cont\n%s:", end)
}

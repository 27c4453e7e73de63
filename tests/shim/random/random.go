package random

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Threads is how many threads run a kernel, in one group.
const Threads = 64

// head has what kernels use. NORM makes a float one from 1 to 2, or from -2 to -1, with the same
// fraction: no sum or product of such is too small or too large. Zero becomes one, whatever its sign, which
// compilers do not keep.
const head = `#pragma OPENCL FP_CONTRACT OFF
float NORM(float x) { return as_float((x == 0.0f ? 0u : as_uint(x) & 0x807fffffu) | 0x3f800000u); }
constant uint table[16] = {0u, 1u, 2u, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0x80u, 0x7fu,
	0x8000u, 0xffffu, 0x10000u, 0x00ff00ffu, 31u, 32u, 33u, 0xdeadbeefu};
`

// Source returns a program with n kernels, k0 to the last. Each is called with words of results, one for each
// thread, of input, four for each, and 16 words of sums, which are zero.
func Source(seed uint64, n int) string {
	var b strings.Builder
	b.WriteString(head)
	for i := range n {
		b.WriteString(kernel(seed, i))
	}
	return b.String()
}

func kernel(seed uint64, i int) string {
	w := &writer{r: rand.New(rand.NewPCG(seed, uint64(i)))}
	w.line("kernel void k%d(global uint *out, global const uint *in, global uint *sum)", i)
	w.line("{")
	w.line("local uint shared[64], count[16];")
	w.line("uint id = get_local_id(0), p[8], u0 = in[id * 4], u1 = in[id * 4 + 1], u2 = in[id * 4 + 2], u3 = id;")
	w.line("int s0 = (int)in[id * 4 + 3], s1 = (int)u0 >> 7, s2 = -(int)id;")
	w.line("ulong l0 = ((global const ulong *)in)[id * 2], l1 = (ulong)u2 << 20 | u1;")
	w.line("long m0 = (long)l0 >> 9;")
	w.line("float f0 = NORM(as_float(u1)), f1 = NORM((float)u0), f2 = NORM((float)s0);")
	w.line("for (uint i = 0; i < 8; i++) p[i] = u0 * i + id;")
	w.line("shared[id] = u1;\nif (id < 16) count[id] = id;\nbarrier(CLK_LOCAL_MEM_FENCE);")
	for range 5 {
		w.statement(2)
		if w.r.IntN(3) == 0 {
			w.exchange()
		}
	}
	w.line("barrier(CLK_LOCAL_MEM_FENCE);")
	w.line("if (id < 16) atomic_add(&sum[id], count[id]);")
	w.line("for (uint i = 0; i < 8; i++) u0 = u0 * 31 + p[i];")
	w.line("uint h = u0;")
	for _, v := range []string{
		"u1", "u2", "u3", "shared[id]", "(uint)s0", "(uint)s1", "(uint)s2", "(uint)l0", "(uint)(l0 >> 32)", "(uint)l1", "(uint)(l1 >> 32)",
		"(uint)m0", "(uint)(m0 >> 32)", "as_uint(f0)", "as_uint(f1)", "as_uint(f2)",
	} {
		w.line("h = (h ^ %s) * 16777619u;", v)
	}
	w.line("out[id] = h;\n}")
	return w.String()
}

type writer struct {
	strings.Builder
	r     *rand.Rand
	loops int // around the place, which a break or continue there is for
	inner int // loops around the place
	names int // of loop counters
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *writer) pick(list ...string) string { return list[w.r.IntN(len(list))] }

// statement writes one. Those inside of others are not as deep.
func (w *writer) statement(depth int) {
	kind := w.r.IntN(12)
	if depth == 0 && kind >= 6 && kind < 10 {
		kind -= 6
	}
	switch kind {
	case 0, 1:
		w.line("%s = %s;", w.pick("u0", "u1", "u2", "u3", "p[u0 & 7]", "p[(uint)s1 & 7]", "p[3]"), w.uint(2))
	case 2:
		w.line("%s = %s;", w.pick("s0", "s1", "s2"), w.int(2))
	case 3:
		w.line("%s = %s;", w.pick("l0", "l1"), w.ulong(2))
	case 4:
		w.line("m0 = %s;", w.long(2))
	case 5:
		w.line("%s = %s;", w.pick("f0", "f1", "f2"), w.float(2))
	case 6:
		w.line("if (%s) {", w.cond(2))
		w.block(depth - 1)
		if w.r.IntN(2) == 0 {
			w.line("} else {")
			w.block(depth - 1)
		}
		w.line("}")
	case 7:
		w.names++
		i := fmt.Sprintf("i%d", w.names)
		w.line("uint n%s = %s & %d;\nfor (uint %s = 0; %s < n%s; %s++) {", i, w.uint(1), 1+2*w.r.IntN(4), i, i, i, i)
		w.loop(depth - 1)
	case 8:
		w.names++
		i := fmt.Sprintf("i%d", w.names)
		w.line("uint %s = 0;\nwhile (%s++ < 5 && %s) {", i, i, w.cond(0))
		w.loop(depth - 1)
	case 9:
		w.line("switch (%s & 3) {", w.uint(1))
		for c := range 2 + w.r.IntN(2) {
			w.line("case %d:", c)
			w.block(depth - 1)
			if w.r.IntN(3) > 0 {
				w.line("break;")
			}
		}
		w.line("default:")
		w.block(0)
		w.line("}")
	case 10:
		w.atomic()
	case 11:
		if w.loops > 0 {
			w.line("if (%s) %s;", w.cond(1), w.pick("break", "continue"))
		}
	}
}

func (w *writer) block(depth int) {
	for range 1 + w.r.IntN(2) {
		loops := w.loops
		w.loops = 0 // a break may be of a switch: only loop writes them
		w.statement(depth)
		w.loops = loops
	}
}

// loop writes a loop's body.
func (w *writer) loop(depth int) {
	w.loops++
	w.inner++
	for range 1 + w.r.IntN(3) {
		w.statement(depth)
	}
	w.inner--
	w.loops--
	w.line("}")
}

// atomic changes a sum in a way in which the order does not matter.
func (w *writer) atomic() {
	place := fmt.Sprintf("%s[%s & 3", w.pick("sum", "count"), w.uint(1))
	switch w.r.IntN(9) {
	case 0:
		w.line("atomic_add(&%s], %s);", place, w.uint(2))
	case 1:
		w.line("atomic_sub(&%s], %s);", place, w.uint(2))
	case 2:
		w.line("atomic_or(&%s | 4], %s);", place, w.uint(2))
	case 3:
		w.line("atomic_max(&%s | 8], %s);", place, w.uint(2))
	case 4:
		w.line("atomic_inc(&%s]);", place)
	case 5:
		w.line("atomic_xor(&%s | 12], %s);", place, w.uint(2))
	case 6:
		w.line("atomic_dec(&%s]);", place)
	case 7: // no two kinds in one place
		w.line("atomic_add((volatile %s int *)&%s], %s);", map[byte]string{'s': "global", 'c': "local"}[place[0]], place, w.int(1))
	case 8:
		w.names++
		old := fmt.Sprintf("i%d", w.names)
		name, index, _ := strings.Cut(place, "[")
		w.line("uint at%s = %s;", old, index)
		w.line("for (uint %s = %s[at%s], seen; (seen = atomic_cmpxchg(&%s[at%s], %s, %s + 7)) != %s; %s = seen);", old, name, old, name, old, old, old, old, old)
	}
}

// exchange passes words between threads, where all of them come by.
func (w *writer) exchange() {
	w.line("barrier(CLK_LOCAL_MEM_FENCE);\nshared[id] = %s;\nbarrier(CLK_LOCAL_MEM_FENCE);", w.uint(2))
	w.line("%s = shared[(id %s %d) & 63];", w.pick("u0", "u1", "u2", "u3"), w.pick("+", "^", "*"), 1+w.r.IntN(63))
	if w.r.IntN(2) == 0 {
		w.line("s0 = ((local short *)shared)[(id * %d) & 127];", 1+w.r.IntN(7))
		w.line("u1 ^= ((local uchar *)shared)[(u0 + %d) & 255];", w.r.IntN(7))
	}
}

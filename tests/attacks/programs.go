package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// vaCode is where programs are, with room for codeBytes.
const (
	vaCode    = 0x16_0000_0000
	codeBytes = 64 << 10
)

// programs are what a guest launches in many blocks.
var programs = []struct {
	name, about string
	text        func(n uint32) string // of launch n
	fresh       bool                  // each launch has another text
	compiles    bool                  // it is measured with a compiler, too; others are over or refused before that
}{
	{"endless", "that does not end", func(uint32) string { return "bra 0x0" }, false, true},
	{"divergence", "that divides its lanes twelve times, for ever", divergence, false, true},
	{"wild", "that loads from addresses without memory", func(uint32) string {
		return "mov b32 $r4 $tidx\nmul $r5 u32 $r4 u32 0x1234567\nand b32 $r5 $r5 0xff\nld b32 $r0 ca g[$r4d]\nexit"
	}, false, false},
	{"self-modifying", "that changes its own code, for ever", selfModifying, false, true},
	{"large", "of 64 KiB", large, false, false},
	{"pathological", "of which LLVM makes much of little, another one for each launch", pathological, true, true},
}

// compiled ends the names of attacks on a server with a compiler.
const compiled = "-program-compiled"

// programAttacks are attacks by programs.
func programAttacks() (out []attack) {
	for _, p := range programs {
		run := func(socket string, ready func()) { launchForEver(socket, p.text, p.fresh, ready) }
		about := "a guest runs a program " + p.about
		out = append(out, attack{name: p.name + "-program", about: about, beside: peaceful, run: run})
		if p.compiles {
			out = append(out, attack{name: p.name + compiled, about: about + ", as machine code", beside: peaceful, run: run})
		}
	}
	return out
}

// launchForEver launches programs one after the other.
func launchForEver(socket string, text func(n uint32) string, fresh bool, ready func()) {
	const blocks, threads = 1024, 256
	p := attach(socket)
	code := get(p.g.AllocVRAM(codeBytes))
	must(p.s.Map(vaCode, code, guest.Small), p.ch.Submit(new(guest.Push).SetObject(push.Compute).Words...))
	launch := push.Launch{Code: vaCode, Blocks: blocks, Threads: threads}
	for n := uint32(0); ; n++ {
		if n == 0 || fresh {
			must(code.Write(0, assembled(text(n))))
		}
		must(p.ch.Submit(new(guest.Push).Launch(push.Compute.Subchan, launch).Words...))
		if n == 0 {
			ready()
		}
		must(p.ch.Finish())
	}
}

func assembled(text string) (code []byte) {
	for _, w := range get(isa.Assemble(text)) {
		code = binary.LittleEndian.AppendUint64(code, w)
	}
	return code
}

// divergence has as many ifs in each other as the control stack takes.
func divergence(uint32) string {
	const depth = 12
	text, end := "mov b32 $r0 $tidx\nagain:\n", ""
	for n := range depth {
		text += fmt.Sprintf("joinat e%[1]d\nadd b32 $r0 $r0 0x5\nand b32 $r1 $r0 %#[2]x\nset $p0 0x1 ne u32 $r1 0x0\n$p0 bra o%[1]d\n", n, 1<<(n%5))
		end = fmt.Sprintf("join nop\no%[1]d:\nadd b32 $r0 $r0 0x3\njoin nop\ne%[1]d:\n", n) + end
	}
	return text + "add b32 $r0 $r0 0x1\n" + end + "bra again"
}

// selfModifying has an instruction of which it makes another one, and back.
func selfModifying(uint32) string {
	const one, two = "mov b32 $r9 0x1", "mov b32 $r9 0x2"
	change := get(isa.Assemble(one))[0] ^ get(isa.Assemble(two))[0]
	return fmt.Sprintf("%s\nmov b32 $r4 %#x\nmov b32 $r5 %#x\nld b64 $r6d cv g[$r4d]\nxor b32 $r6 $r6 $r2\nxor b32 $r7 $r7 $r3\nst b64 wb g[$r4d] $r6d\nbra 0x0",
		one+fmt.Sprintf("\nmov b32 $r2 %#x\nmov b32 $r3 %#x", uint32(change), change>>32), uint32(vaCode&(1<<32-1)), vaCode>>32)
}

// large fills the code's memory with a loop.
func large(uint32) string {
	r := rand.New(rand.NewPCG(1, 2))
	operations := []string{"add b32", "xor b32", "mul rn f32", "min f32"}
	lines := []string{"again:"}
	for range codeBytes/8 - 1 {
		lines = append(lines, fmt.Sprintf("%s $r%d $r%d $r%d", operations[r.IntN(len(operations))], r.IntN(60), r.IntN(60), r.IntN(60)))
	}
	return strings.Join(append(lines, "bra again"), "\n")
}

// pathological has loops in each other that lanes leave at different times, each with memory that needs another way.
func pathological(n uint32) string {
	const depth = 4
	text := fmt.Sprintf("mov b32 $r0 $tidx\nadd b32 $r0 $r0 %#x\n", n%(1<<19))
	end := []string{}
	for i := range depth {
		text += fmt.Sprintf("and b32 $r%[2]d $r0 0x3\nl%[1]d:\nadd $r0 (mul u32 $r0 u32 0x3) $r0\nand b32 $r4 $r0 0x3fffc\nmov b32 $r5 %#[3]x\nst b32 wb g[$r4d] $r0\n", i, 10+i, uint64(vaTo)>>32)
		end = append(end, fmt.Sprintf("sub b32 $r%[2]d $r%[2]d 0x1\nset $p0 0x1 gt s32 $r%[2]d 0x0\n$p0 bra l%[1]d\n", i, 10+i))
	}
	slices.Reverse(end)
	return text + strings.Join(end, "") + "exit"
}

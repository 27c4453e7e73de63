package simd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// bodies are loops' bodies: the address of the data of a lane is in $r4d, in shared memory $r6.
var bodies = map[string]string{
	"fma":    "fma rn f32 $r8 $r9 $r10 $r8\n",
	"add":    "add b32 $r8 $r8 $r9\n",
	"mul":    "mul $r8 u32 $r8 u32 $r9\n",
	"shift":  "shl b32 $r8 $r8 clamp 0x1\n",
	"logic":  "xor b32 $r8 $r8 $r9\n",
	"const":  "add b32 $r8 $r8 c0[0x10]\n",
	"carry":  "add b32 $r8 $c $r8 $r9\n",
	"set":    "set $p1 0x1 lt u32 $r8 $r9\n",
	"select": "selp b32 $r8 $r8 $r9 $p1\n",
	"rcp":    "rcp f32 $r8 $r9\n",
	"fma64":  "fma rn f64 $r8d $r10d $r12d $r8d\n",
	"cvt":    "cvt rn f32 $r8 u32 $r9\n",
	"load":   "ld b32 $r8 ca g[$r4d]\n",
	"gather": "ld b32 $r8 ca g[$r14d]\n",
	"store":  "st b32 wb g[$r4d] $r8\n",
	"shared": "ld b32 $r8 s[$r6]\n",
	"atomic": "red add u32 g[$r14d] $r8\n",
}

func BenchmarkWarpInstruction(b *testing.B) {
	best := fast
	defer func() { fast = best }()
	for name, body := range bodies {
		text := `
	mov b32 $r1 $tidx
	ld b64 $r4d c0[0x0]
	mov b32 $r15 $r5
	shl b32 $r6 $r1 clamp 0x2
	add b32 $r4 $r4 $r6
	and b32 $r14 $r1 0x7
	shl b32 $r14 $r14 clamp 0x4
	add b32 $r14 $r14 0x7000
	mov b32 $r9 0x3f7fff00
	mov b32 $r10 0x3f800001
again:
`
		for range 100 {
			text += body
		}
		code, err := isa.Assemble(text + "bra again\n")
		require.NoError(b, err)
		for set, ops := range sets() {
			block, _ := newBlock(code, 256, nil)
			var x Executor
			x.Start(block.Launch)
			b.Run(name+"/"+set, func(b *testing.B) {
				fast = ops
				b.ReportAllocs()
				from := block.Clock
				for int(block.Clock-from) < b.N {
					_, fault := x.Step(block, min(b.N, 4096))
					require.Nil(b, fault)
				}
			})
		}
		slow, _ := newBlock(code, 256, nil)
		b.Run(name+"/interp", func(b *testing.B) {
			_, fault := slow.Step(b.N)
			require.Nil(b, fault)
		})
	}
}

// BenchmarkRow measures operations alone, on registers as the executor has them: what is left of an
// instruction if nothing chooses it.
func BenchmarkRow(b *testing.B) {
	for name, op := range map[string]rowOp{"fma": fast.fma, "add": fast.add, "mul": fast.mul, "logic": fast.xor, "shift": fast.shl} {
		b.Run(name, func(b *testing.B) {
			p := params{and: [3]uint32{allLanes, allLanes, allLanes}}
			var regs [3]row
			for range b.N {
				op(&regs[0], &regs[1], &regs[0], &regs[2], &p)
			}
		})
	}
	b.Run("load", func(b *testing.B) {
		var d row
		memory := make([]byte, 4096)
		for i := range b.N {
			loadRow(&d, memory[i*128%4096:])
		}
	})
}

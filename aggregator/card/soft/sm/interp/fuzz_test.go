package interp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// Programs of random words of all forms end, fault or go on. They do not crash the executor.
func TestRandomWords(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	ran := make(map[isa.Op]bool)
	forms := isa.Forms()
	for i := range 8 * len(forms) {
		code := smtest.Words(r, forms[i%len(forms)], 20)
		l, _ := prepare(code, 48, r.Uint32())
		l.Units = new(echo)
		b := NewBlock(l, [3]uint32{})
		for w := range b.Warps {
			for reg := range isa.Zero {
				for lane := range Lanes {
					b.Warps[w].Regs[reg][lane] = uint32(smtest.Data+r.IntN(64)*8) >> (r.IntN(2) * 32)
				}
			}
		}
		_, _ = b.Step(400)
		for f := range l.Program.Ran() {
			ran[f.Op] = true
		}
	}
	for op := range isa.NumOps {
		if laneOps[op] != nil || warpOps[op] != nil {
			require.True(t, ran[op] || op == isa.NoOp, "operation %d never ran", op)
		}
	}
}

package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// Programs of random words do the same in both, with the same fault.
func TestRandomWords(t *testing.T) {
	c := jittest.Compiler(t)
	r := rand.New(rand.NewPCG(3, 4))
	forms := isa.Forms()
	for range scale.Of(60, 3000) {
		code := smtest.Words(r, forms[r.IntN(len(forms))], 20)
		w := newTwins(t, c, llvm.Quick, code, [3]uint32{24, 2, 1}, nil)
		w.disturb(t, r, code)
		text := ""
		for i, word := range code {
			in, _ := isa.Decode(word, uint32(8*i))
			text += in.String() + "\n"
		}
		for range 50 {
			if done, _ := w.turn(t, text, func() uint64 { return 1 + r.Uint64N(100) }); done {
				break
			}
		}
	}
}

// A hostile program of any words is translated or refused in bounded time and text.
func TestHostileCode(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	forms := isa.Forms()
	control := []*isa.Form{}
	for _, f := range forms {
		if f.Value&7 == 7 && f.Value&8 == 0 {
			control = append(control, f)
		}
	}
	for i := range scale.Of(6, 100) {
		var code []uint64
		for len(code) < 0x6000/8 {
			f := forms[r.IntN(len(forms))]
			if r.IntN(3) == 0 || i%2 == 0 {
				f = control[r.IntN(len(control))]
			}
			code = append(code, smtest.WordsOf(r, f, 1)...)
		}
		l := newLaunch(smtest.NewMemory(code), [3]uint32{32, 1, 1})
		start := time.Now()
		p, err := compile.Compile(&fermi.FrontEnd{Launch: l}, fermi.Options(l))
		require.Less(t, time.Since(start), 5*time.Second)
		if err == nil {
			require.LessOrEqual(t, p.Blocks, 200)
		}
	}
}

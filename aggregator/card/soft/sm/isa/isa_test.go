package isa

import (
	_ "embed"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/words.txt
var mesaWords string

// words yields words that match a form: its bare value, then random ones, most with few bits.
func words(f *Form, n int) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		r := rand.New(rand.NewPCG(f.Value, f.Mask))
		for i := range n {
			w := r.Uint64()
			for range min(i, 3) & r.IntN(4) {
				w &= r.Uint64()
			}
			if i == 0 {
				w = 0
			}
			if f.short() {
				w &= 1<<32 - 1
			}
			if !yield(w&^f.Mask | f.Value) {
				return
			}
		}
	}
}

// Every word that decodes encodes to itself, but for bits that are ignored, and its text
// assembles to an instruction with the same text.
func TestWordsSurviveTheRoundTrip(t *testing.T) {
	const pc = 1 << 20
	for _, f := range Forms() {
		defined := 0
		for w := range words(f, 200) {
			in, err := Decode(w, pc)
			if err != nil {
				continue
			}
			defined++
			back, err := Encode(&in, pc)
			require.NoError(t, err, "%#x %s", w, &in)
			if in.Form.ignoresGuard() {
				w &^= guardBits
			}
			require.Equal(t, w, back, &in)
			if in.Form.opaque || in.Form.short() {
				continue
			}
			back, err = assembleLine(tokens(in.String()), pc)
			require.NoError(t, err, "%#x %s", w, &in)
			again, err := Decode(back, pc)
			require.NoError(t, err)
			require.Equal(t, in.String(), again.String(), "%#x", w)
		}
		require.Positive(t, defined, "no word of %q is defined", f.Name())
	}
}

// Where two rows match one word, one of them is the more specific, and it wins.
func TestRowsAreUnambiguous(t *testing.T) {
	for i, a := range Forms() {
		for _, b := range Forms()[i+1:] {
			both := a.Mask & b.Mask
			if a.Value&both == b.Value&both {
				require.True(t, a.Mask != b.Mask && both == b.Mask, "%q and %q match the same words", a.Name(), b.Name())
			}
		}
		require.Zero(t, a.Value&^a.Mask, a.Name())
	}
}

func TestEveryOperationHasARow(t *testing.T) {
	var seen [NumOps]bool
	for _, f := range Forms() {
		seen[f.Op] = true
	}
	for op := NoOp + 1; op < NumOps; op++ {
		require.True(t, seen[op], "operation %d has no row", op)
	}
}

func TestEveryModifierHasAName(t *testing.T) {
	require.Len(t, strings.Fields(modNames), int(NumMods))
}

func TestUndefinedWordsSayWhy(t *testing.T) {
	for w, want := range map[uint64]string{
		0x7800000000001c00:         "no form has this opcode",
		0x5004000000001c00:         "reserved bits 0x4000000000000", // add f32
		0x8000000000001ce5:         "value 7 of the width",          // ld
		0x4800800000001c03:         "value 2 of the second operand", // add b32
		0x0000000000001c17 | 8<<60: "reserved bits 0x10 are",        // exit has no join flag
	} {
		_, err := Decode(w, 0)
		require.ErrorContains(t, err, want)
	}
}

// The words are from programs that Mesa compiled.
func TestWordsOfMesa(t *testing.T) {
	for line := range strings.Lines(mesaWords) {
		word, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		w, err := strconv.ParseUint(word, 16, 64)
		require.NoError(t, err)
		in, err := Decode(w, 0)
		require.NoError(t, err)
		require.Equal(t, want, in.String())
	}
}

func TestAssembleResolvesLabels(t *testing.T) {
	code, err := Assemble(`
	joinat end
loop:	// comment
	set $p0 0x1 lt s32 $r0 0x10
	$p0 bra loop
end:
	join nop
	exit`)
	require.NoError(t, err)
	var text []string
	for i, w := range code {
		in, err := Decode(w, uint32(8*i))
		require.NoError(t, err)
		text = append(text, in.String())
	}
	require.Equal(t, []string{"joinat 0x18", "set $p0 0x1 lt s32 $r0 0x10", "$p0 bra 0x8", "join nop", "exit"}, text)
	var listing []string
	for line := range Listing([]byte{0x18, 0x1d, 0x30, 0, 0x08, 0x1c, 0, 0, 0xe7, 0x1d, 0, 0, 0, 0, 0, 0x80, 0x08, 0, 0, 0xb0, 0xe7, 0x1d, 0, 0, 1}) {
		listing = append(listing, line)
	}
	require.Equal(t, []string{
		"00000000: 00301d18              mov b32 $r0 0x3",
		"00000004: 00001c08              nop",
		"00000008: 00001de7 80000000     exit",
		"00000010: b0000008              word 0x00000000b0000008 is no instruction: no form has this opcode",
		"00000014: 00001de7              the code ends inside this instruction",
	}, listing)
	_, err = Assemble("add b32 $r0 $r1 $r2d")
	require.Error(t, err)
}

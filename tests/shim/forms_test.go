package shim

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// A stage runs programs on a card.
type stage struct {
	m                       *Machine
	ch                      *Channel
	code, data, words, args *Buffer
}

func newStage(t *testing.T) *stage {
	s := &stage{m: machine(t, Config{})}
	var err error
	s.ch, err = s.m.NewChannel()
	require.NoError(t, err)
	for i, b := range []**Buffer{&s.code, &s.data, &s.words, &s.args} {
		*b, err = s.m.Alloc(Place{VA: uint64(i+1) << 20, Size: 1 << 13})
		require.NoError(t, err)
	}
	_, err = s.m.Alloc(Place{VA: 8 << 20, Size: 1 << 19})
	require.NoError(t, err)
	return s
}

const (
	before = "ld b64 $r2d c0[0x0]\nld b64 $r4d c0[0x8]\nld b64 $r6d c0[0x10]\nld b64 $r8d c0[0x18]\nmov b32 $r20 $tidx\nmov b32 $r0 0x0\nmov b32 $r1 0x0\n"
	after  = "\nshl b32 $r62 $r20 clamp 0x3\nadd b32 $r60 $r62 c0[0x20]\nmov b32 $r61 0x0\nst b64 wb g[$r60d] $r0d\nexit\n"

	scratch = 2 << 10 // bytes before the results
)

// run returns the result of each thread.
func (s *stage) run(t *testing.T, code []uint64, threads int, args []any) []uint64 {
	clear(s.data.mem)
	for i, w := range code {
		binary.LittleEndian.PutUint64(s.code.mem[8*i:], w)
	}
	raw := binary.LittleEndian.AppendUint64(nil, s.data.VA)
	for _, v := range args {
		raw = appendBits(raw, v)
	}
	clear(s.args.mem)
	copy(s.args.mem, raw)
	binary.LittleEndian.PutUint64(s.args.mem[0x20:], s.data.VA+scratch)
	var p push.Buffer
	p.SetObject(push.Compute)
	const r32Uint = 0xe4
	p.Inc(push.Compute.Subchan, 0x2700, 0, uint32(s.data.VA)+scratch/2, 64, 1|1<<20, r32Uint<<4|0x14000, 0)
	p.Launch(push.Compute.Subchan, push.Launch{Code: s.code.VA, Blocks: 1, Threads: uint32(threads), Constants: s.args.VA, Local: 8 << 20})
	for i, w := range p.Words {
		binary.LittleEndian.PutUint32(s.words.mem[4*i:], w)
	}
	require.NoError(t, s.ch.Run([]Push{{VA: s.words.VA, Size: uint64(4 * len(p.Words))}}))
	out := make([]uint64, threads)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(s.data.mem[scratch+8*i:])
	}
	return out
}

// appendBits appends a number as the card has it.
func appendBits(b []byte, v any) []byte {
	switch v := v.(type) {
	case int:
		return binary.LittleEndian.AppendUint32(b, uint32(v))
	case uint32:
		return binary.LittleEndian.AppendUint32(b, v)
	case float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	case float64: // of 32 bits, see list
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	case wide:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	case int64:
		return binary.LittleEndian.AppendUint64(b, uint64(v))
	case uint64:
		return binary.LittleEndian.AppendUint64(b, v)
	}
	panic(fmt.Sprintf("directed: a %T", v))
}

// plain is an instruction's text without what short forms have not, and imply.
func plain(in *isa.Inst) string {
	text := in.String() + " "
	if barrier, ok := strings.CutSuffix(text, " 0x0 0x1 "); ok {
		text = strings.NewReplacer("bar popc 0x1 0x0", "bar sync", "bar arrive 0x1 0x0", "bar arrive").Replace(barrier) + " "
	}
	return implied.ReplaceAllString(text, "$1 ")
}

var implied = regexp.MustCompile(` ca | wb | rn | clamp |(set \$p\d) 0x1 `)

// short replaces what has a short form by it and a short nop.
func short(t *testing.T, code []uint64) []uint64 {
	const nop = 0x00001c08
	out := slices.Clone(code)
	for i, w := range code {
		in, err := isa.Decode(w, uint32(8*i))
		require.NoError(t, err)
		for _, f := range isa.Forms() {
			if f.Op != in.Op || f.Value&8 == 0 {
				continue
			}
			other := in
			other.Form, other.Size = f, 4
			word, err := isa.Encode(&other, uint32(8*i))
			if err != nil {
				continue
			}
			if back, err := isa.Decode(word, uint32(8*i)); err == nil && back.Form == f && plain(&back) == plain(&in) {
				out[i] = nop<<32 | word
				break
			}
		}
	}
	return out
}

// TestDirectedPrograms: programs give what is computed by hand, also in short forms.
func TestDirectedPrograms(t *testing.T) {
	s := newStage(t)
	for _, p := range directed {
		code, err := isa.Assemble(before + p.text + after)
		if !assert.NoError(t, err, p.text) {
			continue
		}
		threads := max(p.threads, 1)
		for _, code := range [][]uint64{code, short(t, code)} {
			for i, got := range s.run(t, code, threads, p.args) {
				want, ok := p.want.(func(int) uint64)
				if !ok {
					want = func(int) uint64 {
						return binary.LittleEndian.Uint64(append(appendBits(nil, p.want), make([]byte, 8)...))
					}
				}
				assert.Equal(t, want(i), got, "thread %d of %s: %#x, want %#x", i, p.text, got, want(i))
			}
		}
	}
}

package interp

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/smtest"
)

// echo is a unit that returns what it was asked.
type echo struct{ stored []Pixel }

func (e *echo) Texture(t *Texels) error {
	for lane := range Lanes {
		for i := range t.Out {
			t.Out[i][lane] = t.A[0][lane]<<8 | t.A[1][lane]<<4 | t.A[len(t.A)-1][lane]<<12 | uint32(i)
		}
	}
	return nil
}

func (e *echo) Surface(p *Pixel) error {
	if p.Image == 7 {
		return errors.New("images of that format")
	}
	e.stored = append(e.stored, *p)
	p.Data = [4]uint32{p.At[0], p.At[1]}
	return nil
}

func TestUnits(t *testing.T) {
	const start = "mov b32 $r4 0x5\nmov b32 $r5 0x6\n"
	step := func(program string, u Units) (smtest.Memory, *Fault) {
		l, m := prepare(assemble(t, start+program+smtest.Store), 1)
		l.Units = u
		_, fault := NewBlock(l, [3]uint32{}).Step(100)
		return m, fault
	}
	e := new(echo)
	m, fault := step("tex t lzero all dfp #:$r0:#:$r1 t2d $t0 $s0 $r4:$r5 ()\nshl b32 $r1 $r1 clamp 0x10\nor b32 $r0 $r0 $r1", e)
	require.Nil(t, fault)
	require.EqualValues(t, 0x563<<16|0x561, m.Word(0))

	// The first operand of some has five registers.
	m, fault = step("mov b32 $r8 0x9\ntexgrad t off all #:$r0:#:# acube $t0 $s0 $r4:$r5:$r6:$r7:$r8 $r10:$r11", e)
	require.Nil(t, fault)
	require.EqualValues(t, 0x561|9<<12, m.Word(0))

	m, fault = step("suldb b64 $r0d ca zero img[0x1] 2d $r4:$r5\nadd b32 $r0 $r0 $r1", e)
	require.Nil(t, fault)
	require.EqualValues(t, 11, m.Word(0))
	_, fault = step("sustp wb zero img[$r4] 1d $r5 $r4:#:$r5:#", e)
	require.Nil(t, fault)
	require.EqualValues(t, 5, e.stored[1].Image)
	require.Equal(t, [4]uint32{5, 0, 6, 0}, e.stored[1].Data)

	_, fault = step("sustp wb zero img[0x7] 1d $r5 $r4:#:$r5:#", e)
	require.ErrorContains(t, fault, `not implemented at 0x10 "sustp wb zero img[0x7] 1d $r5 $r4:#:$r5:#"`)
	require.ErrorContains(t, fault, "images of that format")
	_, fault = step("sustp wb zero img[0x7] 1d $r5 $r4:#:$r5:#", nil)
	require.ErrorContains(t, fault, "texture and surface units")
}

// Derivatives are differences of neighbours, and lanes that ended take part between quadon and
// quadpop.
func TestQuads(t *testing.T) {
	got := results(t, assemble(t, `
	mov b32 $r1 $tidx
	cvt rn f32 $r2 u32 $r1
	mul rn f32 $r2 $r2 $r2
	set $p0 0x1 eq u32 $r1 0x1
	$p0 exit
	quadon
	quadop rn f32 sub subr sub subr $r3 dall dx $r2 $r2
	quadop rn f32 add add add add $r4 dall l1 $r2 0x0
	quadpop
	add rn f32 $r0 $r3 $r4`+smtest.Store), 8)
	for i, want := range []float32{1 + 1, 0, 5 + 1, 5 + 1, 9 + 25, 9 + 25, 13 + 25, 13 + 25} {
		require.Equal(t, want, math.Float32frombits(got[i]), "lane %d", i)
	}
}

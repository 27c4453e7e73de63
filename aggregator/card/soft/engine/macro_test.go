package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Words of macros: they set the method, send the first parameter, and end after the next word.
const (
	macroNop  = 0x11
	macroSend = 0x841 // of register 1
	macroEnds = 1 << 7
	macroLoop = 0x7 | 1<<5 // to itself, if register 0 is zero
)

func macroMethod(m, increment uint32) uint32 { return 0x21 | (m/4|increment<<12)<<14 }

// upload puts a macro at a place of its own.
func (g *GR) upload(t *testing.T, env *Env, macro uint32, words ...uint32) {
	at := macro * 16
	g.send(t, env, 0x9097, writes{{0x11c, macro}, {0x120, at}, {0x114, at}})
	for _, w := range words {
		g.send(t, env, 0x9097, writes{{0x118, w}})
	}
}

// TestMacroFaults: a macro whose method faults goes on when that was carried out.
func TestMacroFaults(t *testing.T) {
	var g GR
	m := newTestMemory()
	env := newEnv(m)
	g.upload(t, env, 1, macroMethod(0x1b0c, 0), macroSend, macroMethod(0x3400, 1), macroSend|macroEnds, macroSend)
	g.send(t, env, 0x9097, writes{{0x1b00, 0}, {0x1b04, 0x5000}, {0x1b08, 42}})
	require.Equal(t, Faulted, g.Method(env, 0x9097, 0x3808, reportOneWord))
	require.Equal(t, Busy, g.Method(env, 0x9097, 0x3400, 1), "another method must wait")
	require.Zero(t, g.State(0x9097, 0x3404))
	m.mapPage(0x5000)
	require.Equal(t, Done, g.Step(env))
	require.EqualValues(t, 42, m.word(0x5000))
	require.EqualValues(t, reportOneWord, g.State(0x9097, 0x3404))
	require.True(t, g.Idle())
}

// TestEndlessMacro: a macro that does not end never keeps a call.
func TestEndlessMacro(t *testing.T) {
	var g GR
	env := newEnv(newTestMemory())
	g.upload(t, env, 2, macroLoop)
	now := uint64(0)
	env.Clock = func() uint64 { now++; return now }
	env.Begin(now + 3)
	require.Equal(t, Busy, g.Method(env, 0x9097, 0x3810, 0))
	for range 10 {
		require.True(t, env.Over())
		env.Begin(now + 3)
		require.Equal(t, Busy, g.Step(env))
	}
	env.Begin(now + 3)
	g.Abort()
	g.send(t, env, 0x9097, writes{{0x3400, 1}})
}

// TestMacroErrors: what a macro cannot do ends it and is refused, and the next call works.
func TestMacroErrors(t *testing.T) {
	const wants = 0x201 // a parameter
	for name, c := range map[string]struct {
		words []uint32
		then  [2]uint32
		want  Refusal
	}{
		"another method while it waits":  {[]uint32{wants}, [2]uint32{0x3400, 7}, Refusal{0x9097, BadMacro, 0x3400, 7}},
		"another call while it waits":    {[]uint32{wants}, [2]uint32{0x3818, 7}, Refusal{0x9097, BadMacro, 0x3818, 7}},
		"a parameter too many":           {[]uint32{macroNop | macroEnds, macroNop}, [2]uint32{0x381c, 7}, Refusal{0x9097, BadMacro, 0x381c, 7}},
		"a call of a macro":              {[]uint32{macroMethod(0x3818, 0), macroSend}, [2]uint32{}, Refusal{0x9097, BadMacro, 0x3818, 5}},
		"a call in the last word":        {[]uint32{macroMethod(0x3818, 0), macroNop | macroEnds, macroSend}, [2]uint32{}, Refusal{0x9097, BadMacro, 0x3818, 5}},
		"a method that does not exist":   {[]uint32{macroMethod(0x3ffc, 0), macroSend}, [2]uint32{}, Refusal{0x9097, NoMethod, 0x3ffc, 5}},
		"an instruction that is nothing": {[]uint32{0x16}, [2]uint32{}, Refusal{0x9097, BadMacro, 0x30 * 4, 0x16}},
	} {
		t.Run(name, func(t *testing.T) {
			var g GR
			env := newEnv(newTestMemory())
			g.upload(t, env, 3, c.words...)
			o := g.Method(env, 0x9097, 0x3818, 5)
			if c.then[0] != 0 {
				require.Equal(t, Done, o)
				o = g.Method(env, 0x9097, c.then[0], c.then[1])
			}
			require.Equal(t, Illegal, o)
			require.Equal(t, c.want, g.Refusal)
			require.EqualValues(t, 1, env.Stats.Class(0x9097).Illegal.Load())
			g.upload(t, env, 4, macroMethod(0x3400, 0), macroSend|macroEnds, macroNop)
			g.send(t, env, 0x9097, writes{{0x3820, 9}})
			require.EqualValues(t, 9, g.State(0x9097, 0x3400))
		})
	}
}

package engine

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// legal picks data that a row admits, with as many bits set as it can.
func legal(r *Method) uint32 {
	for _, data := range []uint32{r.Mask, r.Mask & 0xfe, r.Mask & 0x555, 1, 0} {
		if data&^r.Mask == 0 && (r.valid == nil || r.valid(data)) {
			return data
		}
	}
	panic("no legal data for " + r.Name)
}

// TestRows writes every element of every row: legal data are kept, a bit that
// is not declared is refused and changes nothing, and everything between the
// rows is no method.
func TestRows(t *testing.T) {
	name := regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	for _, class := range Classes() {
		declared := map[uint32]*Method{}
		for i := range class.rows {
			r := &class.rows[i]
			require.Regexp(t, name, r.Name)
			require.NotZero(t, r.Count, r.Name)
			require.NotZero(t, r.Mask, r.Name)
			for n := range r.Count {
				at := r.Offset + n*r.Stride
				require.Nil(t, declared[at], "%s at %04x", r.Name, at)
				declared[at] = r
			}
		}
		env := newEnv(everywhere{})
		st := env.Stats.Class(class.ID)
		var g GR
		var c CE
		var h Hopper
		for at := uint32(0); at < methodSlots*4; at += 4 {
			g.Abort()
			c.Abort()
			h.Graphics.Transfer, h.Copy = Transfer{}, HopperCopy{}
			write, state := func(data uint32) Outcome { return g.Method(env, class.ID, at, data) }, func() uint32 { return g.State(class.ID, at) }
			refusal := &g.Refusal
			switch class.Kind {
			case KindCE:
				c.Class = class.ID
				write, state = func(data uint32) Outcome { return c.Method(env, at, data) }, func() uint32 { return c.State(at) }
				refusal = &c.Refusal
			case KindHopperGraphics:
				write, state = func(data uint32) Outcome { return h.Graphics.Method(env, class.ID, at, data) }, func() uint32 { return h.Graphics.Values[hopperPlace(class.ID)][at/4] }
				refusal = &h.Graphics.Refusal
			case KindHopperCopy:
				write, state = func(data uint32) Outcome { return h.Copy.Method(env, class.ID, at, data) }, func() uint32 { return h.Copy.Values[at/4] }
				refusal = &h.Copy.Refusal
			}
			illegal := st.Illegal.Load()
			r := declared[at]
			if r == nil {
				require.Equal(t, Illegal, write(0), "%04x: method %04x", class.ID, at)
				require.Equal(t, Refusal{class.ID, NoMethod, at, 0}, *refusal)
				require.Equal(t, illegal+1, st.Illegal.Load())
				continue
			}
			if r.Mask != ^uint32(0) {
				bad := ^r.Mask & (r.Mask + 1) // the lowest bit that is not declared
				require.Equal(t, Illegal, write(bad), "%s", r.Name)
				require.Equal(t, Refusal{class.ID, BadBitfield, at, bad}, *refusal)
				require.Zero(t, state(), r.Name)
			}
			data := legal(r)
			if r.Name == "CALL_MME_DATA" && class.Kind == KindGR { // of a macro that waits: a word of zeros wants one
				require.Equal(t, Done, g.Method(env, class.ID, at-4, 0))
			}
			if r.Name == "LAUNCH" { // of one block of one thread, and little of everything
				g = GR{}
				g.send(t, env, class.ID, writes{{0x250, 1}, {0x3ac, 1<<16 | 1}, {0x3b0, 1}})
			}
			o := write(data)
			if o == Illegal && r.hopper != nil {
				require.Equal(t, Refusal{class.ID, NotCarriedOut, at, data}, *refusal)
				o = Done
			}
			require.NotEqual(t, Illegal, o, "%s %08x", r.Name, data)
			require.Equal(t, data, state(), "%s", r.Name)
			if r.counts {
				require.Equal(t, Done, o)
			}
			if r.Name == "LAUNCH" {
				g = GR{}
			}
		}
		require.NotZero(t, st.Methods.Load())
		if class.Kind == KindGR {
			require.Equal(t, Illegal, (&GR{}).Method(env, class.ID, 0x101, 0), "a method between two dwords")
			require.Equal(t, Illegal, (&GR{}).Method(env, class.ID, methodSlots*4, 0))
		}
	}
}

// everywhere is memory at every address; all of it is the same page.
type everywhere struct{}

func (everywhere) Bytes(va uint64, n int, _ bool) ([]byte, *Fault) {
	return scratch[:min(uint64(n), pageSize-va%pageSize)], nil
}

var scratch [pageSize]byte

// TestNotExecuted: methods that are not executed are named and counted, and touch no
// memory.
func TestNotExecuted(t *testing.T) {
	var g GR
	m := newTestMemory()
	env := newEnv(m)
	require.Empty(t, env.Stats.NotExecuted())
	g.send(t, env, 0x9097, writes{{0x19d0, 0x3c}, {0x19d0, 0x3c}, {0x0d78, 3}})
	g.send(t, env, 0x902d, writes{{0x08dc, 0}})
	require.Equal(t, []NotExecuted{
		{0x902d, "PIXELS_FROM_MEMORY_SRC_Y0_INT", 1},
		{0x9097, "DRAW_VERTEX_ARRAY", 1},
		{0x9097, "CLEAR_SURFACE", 2},
	}, env.Stats.NotExecuted())
	require.Zero(t, m.calls)
}

func TestClasses(t *testing.T) {
	ids := map[uint16]Kind{}
	for _, c := range Classes() {
		ids[c.ID] = c.Kind
	}
	require.Equal(t, map[uint16]Kind{0x9039: KindGR, 0x902d: KindGR, 0x9097: KindGR, 0x90c0: KindGR, 0x90b5: KindCE, 0x90b8: KindCE,
		0xcb97: KindHopperGraphics, 0xcbc0: KindHopperGraphics, 0xa140: KindHopperGraphics, 0xc8b5: KindHopperCopy}, ids)
	var g GR
	env := newEnv(newTestMemory())
	require.Equal(t, Illegal, g.Method(env, 0x90b5, 0x100, 0))
	require.Equal(t, NoClass, g.Refusal.Reason)
	require.Nil(t, env.Stats.Class(0x1234))
}

func TestReasons(t *testing.T) {
	require.EqualValues(t, 0, NoMethod.GRDataError())
	require.EqualValues(t, 0xc, BadBitfield.GRDataError())
	require.EqualValues(t, 0x5, BadEnum.GRDataError())
	require.EqualValues(t, 1, NoMethod.CEStatus())
	require.EqualValues(t, 3, BadBitfield.CEStatus())
}

// TestMesaMethods holds the tables against what a real driver writes: it must
// find every method, and declared bits for all its data.
func TestMesaMethods(t *testing.T) {
	text, err := os.ReadFile("testdata/mesa-25.0.7.methods")
	require.NoError(t, err)
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var class uint16
		var method, data uint32
		_, err := fmt.Sscanf(line, "%x %x %x", &class, &method, &data)
		require.NoError(t, err, line)
		r := grClass(class).lookup(method)
		require.NotNil(t, r, "class %04x has no method %04x", class, method)
		require.Zero(t, data&^r.Mask, "%04x %s: %08x has bits outside %08x", class, r.Name, data, r.Mask)
		rows++
	}
	require.Greater(t, rows, 400)
}

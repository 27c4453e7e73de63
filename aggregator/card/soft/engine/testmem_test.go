package engine

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// testMemory is an address space of pages in a map: each page is mapped on its
// own, pages that are not mapped fault.
type testMemory struct {
	pages map[uint64][]byte
	short func(n int) int // how much of a run to give away; nil: all of the page
	calls int
}

func newTestMemory() *testMemory { return &testMemory{pages: map[uint64][]byte{}} }

const reasonNotPresent = 2

func (m *testMemory) Bytes(va uint64, n int, write bool) ([]byte, *Fault) {
	m.calls++
	if va > vaMask || n < 1 || va+uint64(n) > 1<<vaBits {
		panic("engine asked for an address out of range")
	}
	p := m.pages[va/pageSize]
	if p == nil {
		return nil, &Fault{VA: va, Write: write, Reason: reasonNotPresent}
	}
	p = p[va%pageSize:]
	if len(p) > n {
		p = p[:n]
	}
	if m.short != nil {
		p = p[:max(1, min(len(p), m.short(len(p))))]
	}
	return p, nil
}

func (m *testMemory) mapPage(va uint64) {
	if m.pages[va&vaMask/pageSize] == nil {
		m.pages[va&vaMask/pageSize] = make([]byte, pageSize)
	}
}

func (m *testMemory) mapRange(va, n uint64) {
	for at := va &^ (pageSize - 1); at < va+n; at += pageSize {
		m.mapPage(at)
	}
}

func (m *testMemory) load(va uint64) byte { return m.pages[va&vaMask/pageSize][va%pageSize] }
func (m *testMemory) store(va uint64, b byte) {
	m.mapPage(va)
	m.pages[va&vaMask/pageSize][va%pageSize] = b
}

func (m *testMemory) word(va uint64) uint32 {
	var w [4]byte
	for i := range w {
		w[i] = m.load(va + uint64(i))
	}
	return binary.LittleEndian.Uint32(w[:])
}

func (m *testMemory) clone() *testMemory {
	c := newTestMemory()
	for k, p := range m.pages {
		c.pages[k] = append([]byte(nil), p...)
	}
	return c
}

const testNow = 0x1122334455667788

func newEnv(m Memory) *Env {
	return &Env{Mem: m, Now: func() uint64 { return testNow }, Stats: &Stats{}}
}

// writes is a list of method, data.
type writes [][2]uint32

// send delivers a list of methods, each to its end.
func (g *GR) send(t require.TestingT, env *Env, class uint16, list writes) {
	for _, w := range list {
		require.Equal(t, Done, finish(g.Method(env, class, w[0], w[1]), func() Outcome { return g.Step(env) }), "method %04x data %08x: %+v", w[0], w[1], g.Refusal)
	}
}

func (c *CE) send(t require.TestingT, env *Env, list writes) {
	for _, w := range list {
		require.Equal(t, Done, finish(c.Method(env, w[0], w[1]), func() Outcome { return c.Step(env) }), "method %04x data %08x: %+v", w[0], w[1], c.Refusal)
	}
}

func finish(o Outcome, step func() Outcome) Outcome {
	for o == Busy {
		o = step()
	}
	return o
}

func TestSmoke(t *testing.T) {
	m := newTestMemory()
	m.mapRange(0x10000, 0x8000)
	m.mapRange(0x40000, 0x8000)
	m.mapRange(0x60000, 0x1000)
	for i := range uint64(0x8000) {
		m.store(0x10000+i, byte(i*7+i>>8))
	}
	env := newEnv(m)
	var g GR
	g.send(t, env, 0x9039, writes{{0x30c, 0}, {0x310, 0x10003}, {0x238, 0}, {0x23c, 0x40001}, {0x314, 4096}, {0x318, 4096}, {0x31c, 4096}, {0x320, 7},
		{0x32c, 0}, {0x330, 0x60000}, {0x334, 0xcafe}, {0x300, 0x2110}})
	for i := range uint64(7 * 4096) {
		require.Equal(t, m.load(0x10003+i), m.load(0x40001+i))
	}
	require.Equal(t, uint32(0xcafe), m.word(0x60000))
	require.Equal(t, uint32(testNow>>32), m.word(0x6000c))
	require.EqualValues(t, 7*4096, env.Stats.Class(0x9039).Bytes.Load())

	var c CE
	c.send(t, env, writes{{0x310, 0x10000}, {0x318, 0x41000}, {0x31c, 4096}, {0x320, 4096}, {0x324, 4096}, {0x328, 3}, {0x300, 0x110}})
	for i := range uint64(3 * 4096) {
		require.Equal(t, m.load(0x10000+i), m.load(0x41000+i))
	}
	g.send(t, env, 0x9039, writes{{0x23c, 0x40000}, {0x31c, 7}, {0x320, 1}, {0x300, 0x100111}, {0x304, 0x04030201}, {0x304, 0x99070605}})
	require.Equal(t, uint32(0x04030201), m.word(0x40000))
	require.Equal(t, byte(7), m.load(0x40006))
	require.NotEqual(t, byte(0x99), m.load(0x40007))
}

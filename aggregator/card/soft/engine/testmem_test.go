package engine

import (
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
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
	return &Env{Mem: m, Now: func() uint64 { return testNow }, Stats: &Stats{}, Grid: new(Grid), Pages: new(Pages), Processors: newProcessors(3)}
}

func newProcessors(n int) *Processors {
	return NewProcessors(n, func() sm.Executor { return new(simd.Executor) })
}

// oneProcessor is a processor in a step that runs no program.
func oneProcessor(env *Env) *processor {
	env.Processors.step.start(env, nil)
	p := &env.Processors.all[0]
	p.pages = env.Pages
	return p
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

// State is the last data written to a method of a class.
func (g *GR) State(class uint16, method uint32) uint32 {
	c := grClass(class)
	if c == nil || method/4 >= methodSlots {
		return 0
	}
	return g.Values[c.place][method/4]
}

// State is the last data written to a method.
func (c *CE) State(method uint32) uint32 {
	if method/4 >= ceSlots {
		return 0
	}
	return c.Values[method/4]
}

package engine

import (
	"encoding/binary"
	"testing"
)

// fuzzMethods are the methods worth hitting more often than chance does.
var fuzzMethods = []uint32{0x300, 0x304, 0x204, 0x208, 0x20c, 0x214, 0x220, 0x224, 0x228, 0x230, 0x238, 0x23c, 0x308, 0x30c, 0x310, 0x314, 0x318, 0x31c, 0x320,
	0x324, 0x328, 0x32c, 0x330, 0x334, 0x338, 0x33c, 0x340, 0x344, 0x348, 0x1b00, 0x1b04, 0x1b08, 0x1b0c, 0x2380, 0x2384, 0x2388, 0x238c, 0x2390, 0x114, 0x118, 0x11c, 0x120}

// FuzzMethods delivers any stream of methods to both kinds of engine on memory
// with holes: nothing may panic, ask for an address that does not exist, or do
// more than a step's work in one call.
func FuzzMethods(f *testing.F) {
	word := func(engine, kind byte, method uint16, data uint32) []byte {
		b := []byte{engine, kind, byte(method), byte(method >> 8)}
		return binary.LittleEndian.AppendUint32(b, data)
	}
	var kernel, upload, tiled, ce []byte
	for _, w := range (writes{{0x310, 0x10000}, {0x23c, 0x20000}, {0x314, 4096}, {0x318, 4096}, {0x31c, 4096}, {0x320, 3}, {0x330, 0x30000}, {0x300, 0x2110}}) {
		kernel = append(kernel, word(0, 0, uint16(w[0]), w[1])...)
	}
	for _, w := range (writes{{0x23c, 0x1fffe}, {0x31c, 100}, {0x320, 3}, {0x300, 0x111}}) {
		upload = append(upload, word(0, 0, uint16(w[0]), w[1])...)
	}
	upload = append(upload, word(0, 2, 0x304, 60)...)
	upload = append(upload, word(0, 2, 0x304, 60)...)
	for _, w := range (writes{{0x204, 0x540}, {0x208, 0xffffffff}, {0x20c, 0xffffffff}, {0x214, 0xffffffff}, {0x31c, 0xffffffff}, {0x320, 0xffffffff}, {0x300, 0x100}}) {
		tiled = append(tiled, word(0, 0, uint16(w[0]), w[1])...)
	}
	for _, w := range (writes{{0x32c, 0x03330213}, {0x324, 0xffff}, {0x328, 0x1fff}, {0x204, 0x7ffff}, {0x200, 0xffe}, {0x300, 0x1001}}) {
		ce = append(ce, word(4, 0, uint16(w[0]), w[1])...)
	}
	for _, s := range [][]byte{kernel, upload, tiled, ce} {
		f.Add(s, uint64(0), uint16(0))
		f.Add(s, uint64(0x5555), uint16(77))
	}
	classes := []uint16{0x9039, 0x9097, 0x90c0, 0x902d}
	f.Fuzz(func(t *testing.T, stream []byte, holes uint64, budget uint16) {
		if len(stream) > 8*64 {
			return
		}
		m := &fuzzMemory{holes: holes}
		env := newEnv(m)
		env.Budget = 1 + int(budget)
		var g GR
		var c CE
		inline := make([]byte, 1024)
		for ; len(stream) >= 8; stream = stream[8:] {
			method := uint32(binary.LittleEndian.Uint16(stream[2:]))
			if stream[1]&1 != 0 {
				method = fuzzMethods[int(method)%len(fuzzMethods)]
			}
			data := binary.LittleEndian.Uint32(stream[4:])
			m.bytes, m.calls = 0, 0
			var o Outcome
			switch e := stream[0] % 5; {
			case e == 4:
				o = c.Method(env, method, data)
			case stream[1]&2 != 0:
				var n int
				n, o = g.Inline(env, classes[e], method, inline[:data%1025])
				if n%4 != 0 || n > len(inline) {
					t.Fatalf("inline took %d bytes", n)
				}
			default:
				o = g.Method(env, classes[e], method, data)
			}
			m.check(t)
			for range 3 {
				if o != Busy && o != Faulted {
					break
				}
				m.bytes, m.calls = 0, 0
				if stream[0]%5 == 4 {
					o = c.Step(env)
				} else {
					o = g.Step(env)
				}
				m.check(t)
			}
			if o == Busy || o == Faulted {
				g.Abort()
				c.Abort()
			}
			if !g.Idle() || !c.Idle() {
				t.Fatal("work is left although the engine says it is done")
			}
		}
	})
}

// fuzzMemory is small pages that all show the same bytes, some of them missing.
type fuzzMemory struct {
	page  [pageSize]byte
	holes uint64
	calls int
	bytes int
	fault Fault
}

func (m *fuzzMemory) Bytes(va uint64, n int, write bool) ([]byte, *Fault) {
	if va > vaMask || n < 1 || va+uint64(n) > 1<<vaBits || n > Budget {
		panic("engine asked for an address out of range")
	}
	m.calls++
	if m.holes>>(va/pageSize%64)&1 != 0 {
		m.fault = Fault{VA: va, Write: write, Reason: reasonNotPresent}
		return nil, &m.fault
	}
	b := m.page[va%pageSize:]
	b = b[:min(len(b), n)]
	m.bytes += len(b)
	return b, nil
}

// check bounds the work of one call: look-ups are what it costs.
func (m *fuzzMemory) check(t *testing.T) {
	if m.calls > 1<<17 {
		t.Fatalf("%d look-ups in one call", m.calls)
	}
}

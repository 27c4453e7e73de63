package engine

import (
	"encoding/binary"
	"testing"
)

// fuzzMethods are the methods worth hitting more often than chance does.
var fuzzMethods = []uint32{0x300, 0x304, 0x204, 0x208, 0x20c, 0x214, 0x220, 0x224, 0x228, 0x230, 0x238, 0x23c, 0x308, 0x30c, 0x310, 0x314, 0x318, 0x31c, 0x320,
	0x324, 0x328, 0x32c, 0x330, 0x334, 0x338, 0x33c, 0x340, 0x344, 0x348, 0x1b00, 0x1b04, 0x1b08, 0x1b0c, 0x2380, 0x2384, 0x2388, 0x238c, 0x2390, 0x114, 0x118, 0x11c, 0x120,
	0x180, 0x184, 0x188, 0x18c, 0x190, 0x194, 0x198, 0x1a8, 0x1ac, 0x1b0, 0x1b4, 0x1dc, 0x240, 0x244, 0x248, 0x404, 0x40c, 0x410, 0x414, 0x418, 0x41c, 0x708, 0x70c, 0x710, 0x714, 0x71c, 0x74c}

// FuzzMethods delivers any stream of methods to each kind of engine on memory
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
	var hopper, i2m []byte
	for _, w := range (writes{{0x708, 0x03330641}, {0x418, 0xffff}, {0x41c, 0xffffffff}, {0x70c, 0x550}, {0x710, 0xffffffff}, {0x714, 0xffffffff}, {0x71c, 0xffffffff}, {0x300, 0x6ce}}) {
		hopper = append(hopper, word(6, 0, uint16(w[0]), w[1])...)
	}
	for _, w := range (writes{{0x18c, 0xfff1}, {0x180, 0xffffffff}, {0x184, 0xffffffff}, {0x1b0, 0x120}}) {
		i2m = append(i2m, word(5, 0, uint16(w[0]), w[1])...)
	}
	i2m = append(i2m, word(5, 2, 0x1b4, 60)...)
	f.Add(hopper, uint64(0x5555), uint16(77))
	f.Add(i2m, uint64(0x5555), uint16(77))
	classes := []uint16{0x9039, 0x9097, 0x90c0, 0x902d}
	hopperClasses := []uint16{0xcb97, 0xcbc0, 0xa140, 0x902d}
	f.Fuzz(func(t *testing.T, stream []byte, holes uint64, budget uint16) {
		if len(stream) > 8*64 {
			return
		}
		m := &fuzzMemory{holes: holes}
		env := newEnv(m)
		env.Budget = 1 + int(budget)
		var g GR
		var c CE
		var h Hopper
		inline := make([]byte, 1024)
		for ; len(stream) >= 8; stream = stream[8:] {
			method := uint32(binary.LittleEndian.Uint16(stream[2:]))
			if stream[1]&1 != 0 {
				method = fuzzMethods[int(method)%len(fuzzMethods)]
			}
			data := binary.LittleEndian.Uint32(stream[4:])
			m.bytes, m.calls = 0, 0
			var o Outcome
			step := g.Step
			switch e := stream[0] % 7; {
			case e == 4:
				o, step = c.Method(env, method, data), c.Step
			case e == 6:
				o, step = h.Copy.Method(env, 0xc8b5, method, data), h.Copy.Step
			case stream[1]&2 != 0:
				var n int
				if e == 5 {
					n, o = h.Graphics.Inline(env, hopperClasses[stream[0]/7%4], method, inline[:data%1025])
					step = h.Graphics.Step
				} else {
					n, o = g.Inline(env, classes[e], method, inline[:data%1025])
				}
				if n%4 != 0 || n > len(inline) {
					t.Fatalf("inline took %d bytes", n)
				}
			case e == 5:
				o, step = h.Graphics.Method(env, hopperClasses[stream[0]/7%4], method, data), h.Graphics.Step
			default:
				o = g.Method(env, classes[e], method, data)
			}
			m.check(t)
			for range 3 {
				if o != Busy && o != Faulted {
					break
				}
				m.bytes, m.calls = 0, 0
				o = step(env)
				m.check(t)
			}
			if o == Busy || o == Faulted {
				g.Abort()
				c.Abort()
				h.Graphics.Transfer, h.Copy.Transfer = Transfer{}, Transfer{}
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

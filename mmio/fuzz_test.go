package mmio

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// fuzzRegs is a small table with every mode, shared dwords and both kinds of
// nesting, next to page borders and the end of the space.
var fuzzRegs = []Reg{
	{Name: "NV_PMC_BOOT_0", Access: RO, Reset: 0x0c0000a3},
	{Name: "NV_PMC_INTR_0", Offset: 4, Access: W1C, Reset: 0xffff, Effect: "interrupts go"},
	{Name: "NV_PMC_SET", Offset: 8, Access: W1S},
	{Name: "NV_PMC_SECRET", Offset: 12, Access: WO},
	{Name: "NV_PMC_ONCE", Offset: 16, Access: RC, Reset: 0xa5a5a5a5, Effect: "forgets"},
	{Name: "NV_PMC_MIXED", Offset: 20, Access: RO, Reset: 0x12345678, Effect: "mixes", Fields: []Field{
		{Name: "RW", Hi: 3, Lo: 0}, {Name: "W1C", Hi: 12, Lo: 5, Access: W1C}, {Name: "WO", Hi: 20, Lo: 18, Access: WO},
		{Name: "RC", Hi: 27, Lo: 21, Access: RC}, {Name: "W1S", Hi: 31, Lo: 30, Access: W1S}}},
	{Name: "NV_PVGA_A", Offset: 24, Width: 1, Stub: true},
	{Name: "NV_PVGA_C", Offset: 26, Width: 2, Access: W1C, Reset: 0xffff, Effect: "clears"},
	{Name: "NV_PVGA_B", Offset: 25, Width: 1, Access: RC, Reset: 0x55, Effect: "reads"},
	{Name: "NV_PFIFO_CHAN", Offset: pageSize - 8, Rep: []Dim{{3, 16}, {2, 4}}, Effect: "a channel"},
	{Name: "NV_PFIFO_TURNED", Offset: 2*pageSize - 8, Rep: []Dim{{2, 4}, {3, 16}}, Access: W1S, Effect: "a channel"},
	{Name: "NV_LAST", Offset: 3*pageSize - 2, Width: 2, Effect: "ends"},
}

// fuzzApertures fills the last page, so that accesses leave the window and the
// space at once.
var fuzzApertures = []Aperture{{Name: "WINDOW", Offset: 3 * pageSize, Size: pageSize}}

// FuzzAccess reads its input as accesses: a byte with size and direction, two of
// offset, then the data of a write.
func FuzzAccess(f *testing.F) {
	access := func(off uint16, size byte, data ...byte) []byte {
		b := []byte{size << 1, byte(off), byte(off >> 8)}
		if len(data) > 0 {
			b[0] |= 1
		}
		return append(b, data...)
	}
	f.Add([]byte{})
	f.Add(bytes.Join([][]byte{access(0, 4), access(4, 4, 1, 2, 3, 4), access(4, 8), access(16, 1), access(16, 8), access(18, 4)}, nil))
	f.Add(bytes.Join([][]byte{access(22, 8, 1, 2, 3, 4, 5, 6, 7, 8), access(25, 1), access(24, 4), access(23, 2)}, nil))
	f.Add(bytes.Join([][]byte{access(pageSize-2, 8, 8, 7, 6, 5, 4, 3, 2, 1), access(pageSize-8, 8), access(pageSize+14, 4)}, nil))
	f.Add(bytes.Join([][]byte{access(2*pageSize+8, 8, 1, 1, 1, 1, 1, 1, 1, 1), access(2*pageSize-8, 8)}, nil))
	f.Add(bytes.Join([][]byte{access(3*pageSize-1, 8), access(3*pageSize-3, 4, 9, 8, 7, 6), access(3*pageSize-4, 2)}, nil))
	f.Add(bytes.Join([][]byte{access(twinSize-4, 8, 1, 2, 3, 4, 5, 6, 7, 8), access(twinSize-3, 3), access(0xffff, 127), access(twinSize-2, 2, 1, 2)}, nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		p := newPair(t, fuzzRegs, fuzzApertures)
		for len(in) >= 3 {
			size, off := int(in[0]>>1), uint32(binary.LittleEndian.Uint16(in[1:]))
			write := in[0]&1 == 1
			in = in[3:]
			data := make([]byte, size)
			if write {
				in = in[copy(data, in):]
			}
			p.access(t, off%(twinSize+8), data, write)
		}
		p.compare(t)
	})
}

func FuzzReadTrace(f *testing.F) {
	file := traceFile(f)
	f.Add(file)
	f.Add(file[:HeaderSize])
	f.Add(file[:len(file)-1])
	f.Add([]byte(TraceMagic))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := ReadTrace(bytes.NewReader(in))
		if err != nil {
			return
		}
		// What is accepted is exactly what would be written for it.
		out := append([]byte(nil), in[:HeaderSize]...)
		for _, r := range got.Records {
			b := make([]byte, RecordSize)
			r.put(b)
			out = append(out, b...)
		}
		require.Equal(t, in, out)
	})
}

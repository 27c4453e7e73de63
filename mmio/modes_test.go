package mmio

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// modeCase says what one mode does to four bits: what is stored at first, what a
// guest reads, what is stored after that, and what once it has written.
type modeCase struct {
	mode                     Access
	old, reads, after, write byte
}

// Stored 0b1100, written 0b1010: every combination of old and new bit, once.
var modeCases = []modeCase{
	{RW, 0b1100, 0b1100, 0b1100, 0b1010},
	{RO, 0b1100, 0b1100, 0b1100, 0b1100},
	{WO, 0b1100, 0b0000, 0b1100, 0b1010},
	{W1C, 0b1100, 0b1100, 0b1100, 0b0100},
	{W1S, 0b1100, 0b1100, 0b1100, 0b1110},
	{RC, 0b1100, 0b1100, 0b0000, 0b0000},
}

const written = 0b1010

// repeat puts the byte into every byte of a register of width bytes.
func repeat(b byte, width int) uint32 {
	return uint32(b) * 0x01010101 & uint32(1<<(8*width)-1)
}

// storage is one way a register may sit in the space.
type storage struct {
	name string
	// place returns the rows, the register's offset and its instance number.
	place func(r Reg) (rows []Reg, off uint32, inst int)
}

var storages = []storage{
	{"alone", func(r Reg) ([]Reg, uint32, int) { r.Offset = 0x100; return []Reg{r}, 0x100, 0 }},
	{"upper end of a dword", func(r Reg) ([]Reg, uint32, int) {
		r.Offset = 0x104 - width(r)
		return []Reg{r}, r.Offset, 0
	}},
	{"repeated", func(r Reg) ([]Reg, uint32, int) {
		r.Offset, r.Rep = 0x100, []Dim{{4, 0x20}}
		return []Reg{r}, 0x160, 3
	}},
	{"repeated in two dimensions", func(r Reg) ([]Reg, uint32, int) {
		r.Offset, r.Rep = 0x100, []Dim{{3, 0x40}, {2, 8}}
		return []Reg{r}, 0x188, 5
	}},
	{"repeated with the inner stride larger", func(r Reg) ([]Reg, uint32, int) {
		r.Offset, r.Rep = 0x100, []Dim{{3, 4}, {2, 0x100}}
		return []Reg{r}, 0x204, 3
	}},
	{"beside other registers", func(r Reg) ([]Reg, uint32, int) {
		r.Offset = 0x100
		rows := []Reg{r}
		for off := 0x100 + width(r); off < 0x108; off++ {
			rows = append(rows, Reg{Name: fmt.Sprintf("NV_BESIDE_%d", off), Offset: off, Width: 1, Access: W1C, Reset: 0xff})
		}
		return rows, 0x100, 0
	}},
	{"last in the space", func(r Reg) ([]Reg, uint32, int) {
		r.Offset = pageSize - width(r)
		return []Reg{r}, r.Offset, 0
	}},
}

func TestAccessModes(t *testing.T) {
	for _, c := range modeCases {
		for _, width := range []int{1, 2, 4} {
			for _, st := range storages {
				for _, effects := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v/%d bytes/%s/effects %v", c.mode, width, st.name, effects), func(t *testing.T) {
						testMode(t, c, width, st, effects, false)
					})
				}
				t.Run(fmt.Sprintf("%v/%d bytes/%s/as a field", c.mode, width, st.name), func(t *testing.T) {
					testMode(t, c, width, st, false, true)
				})
			}
		}
	}
}

func testMode(t *testing.T, c modeCase, width int, st storage, effects, field bool) {
	r := Reg{Name: "NV_TEST", Width: uint8(width), Access: c.mode, Reset: repeat(c.old, width)}
	if field {
		// All bits by a field, under a register mode that would show.
		r.Fields = []Field{{Name: "ALL", Hi: uint8(width*8 - 1), Access: c.mode}}
		r.Access = (c.mode + 1) % accessModes
	}
	var wrote *Write
	var readInst, writeInst = -1, -1
	var b Bindings
	if effects {
		r.Effect = "the test's"
		b.On("NV_TEST", Hooks{
			Read:  func(i int, v uint32) uint32 { readInst = i; return ^v },
			Write: func(i int, w Write) { writeInst = i; wrote = &w },
		})
	}
	rows, off, inst := st.place(r)
	s, err := New(pageSize, []Block{{Name: "BLOCK", Regs: rows}}, nil, &b)
	require.NoError(t, err)
	cell := s.Cell("NV_TEST", inst)
	require.Equal(t, repeat(c.old, width), cell.Get(), "reset value")

	p := make([]byte, width)
	s.Read(off, p)
	want := repeat(c.reads, width)
	if effects {
		want = ^want & repeat(0xff, width)
		require.Equal(t, inst, readInst)
	}
	require.Equal(t, want, value(p), "what the guest reads")
	require.Equal(t, repeat(c.after, width), cell.Get(), "stored after the read")

	v := repeat(written, width)
	binary.Encode(p, binary.LittleEndian, sized(v, width))
	s.Write(off, p)
	require.Equal(t, repeat(c.write, width), cell.Get(), "stored after the write")
	if effects {
		require.Equal(t, inst, writeInst)
		require.Equal(t, Write{Old: repeat(c.after, width), New: repeat(c.write, width),
			Data: v, Mask: repeat(0xff, width)}, *wrote)
	}
	for _, other := range rows {
		if other.Name != "NV_TEST" {
			require.Equal(t, other.Reset, s.Cell(other.Name, 0).Get(), "%s is another register", other.Name)
		}
	}
	readOnly := uint64(0)
	if c.mode == RO || c.mode == RC {
		readOnly = 1
	}
	require.Equal(t, Missed{ReadOnly: readOnly}, s.Missed())
}

func value(p []byte) uint32 {
	var b [4]byte
	copy(b[:], p)
	return binary.LittleEndian.Uint32(b[:])
}

func sized(v uint32, width int) any {
	switch width {
	case 1:
		return uint8(v)
	case 2:
		return uint16(v)
	}
	return v
}

// A read of some bytes clears the RC bits of those bytes only.
func TestReadToClearByByte(t *testing.T) {
	s, err := New(pageSize, []Block{{Name: "B", Regs: []Reg{{Name: "NV_RC", Access: RC, Reset: 0xffffffff}}}}, nil, nil)
	require.NoError(t, err)
	p := make([]byte, 1)
	s.Read(2, p)
	require.Equal(t, []byte{0xff}, p)
	require.EqualValues(t, 0xff00ffff, s.Cell("NV_RC", 0).Get())
}

// An effect that raises a status bit while the guest clears it must not be lost.
func TestWriteOneToClearThenEffectSets(t *testing.T) {
	var s *Space
	var b Bindings
	b.OnWrite("NV_INTR", func(_ int, w Write) { s.Cell("NV_INTR", 0).Set(2) })
	var err error
	s, err = New(pageSize, []Block{{Name: "B", Regs: []Reg{
		{Name: "NV_INTR", Access: W1C, Reset: 3, Effect: "the condition still holds"}}}}, nil, &b)
	require.NoError(t, err)
	s.Write32(0, 3)
	require.EqualValues(t, 2, s.Read32(0))
}

// A window that leaves bytes alone shows zeroes, not what was in the buffer.
func TestLazyWindow(t *testing.T) {
	var b Bindings
	b.OnWindow("WINDOW", Window{Read: func(_ uint32, p []byte) { p[1] = 7 }, Write: func(uint32, []byte) {}})
	s, err := New(pageSize, nil, []Aperture{{Name: "WINDOW", Size: pageSize}}, &b)
	require.NoError(t, err)
	p := []byte{1, 2, 3, 4}
	s.Read(0, p)
	require.Equal(t, []byte{0, 7, 0, 0}, p)
}

// Effects may themselves access the space as a guest would, Read32 included.
func TestEffectsMayAccess(t *testing.T) {
	var s *Space
	var b Bindings
	b.OnRead("NV_INDEXED", func(_ int, v uint32) uint32 { return s.Read32(v) })
	b.OnWrite("NV_SOFT_RESET", func(_ int, w Write) {
		s.Reset()
		s.Write32(8, w.Data)
	})
	var err error
	s, err = New(pageSize, []Block{{Name: "B", Regs: []Reg{
		{Name: "NV_INDEXED", Effect: "reads the register it points at", Reset: 8},
		{Name: "NV_SOFT_RESET", Offset: 4, Effect: "resets all"},
		{Name: "NV_DATA", Offset: 8, Reset: 0x11223344},
	}}}, nil, &b)
	require.NoError(t, err)
	require.EqualValues(t, 0x1122, s.Read32(2), "across two registers, with a buffer in use")
	require.EqualValues(t, 0x11223344, s.Read32(0))
	s.Write32(0, 4)
	s.Write32(4, 0x55)
	require.EqualValues(t, 0x55, s.Read32(0), "reset to 8, then written")
}

// An access of eight bytes over a register, half of it inside an aperture.
func TestHalfInAnAperture(t *testing.T) {
	var calls []string
	var b Bindings
	b.OnWindow("WINDOW", Window{
		Read: func(off uint32, p []byte) {
			calls = append(calls, fmt.Sprintf("read %#x %d/%d", off, len(p), cap(p)))
			for i := range p {
				p[i] = 0xa0 + byte(i)
			}
		},
		Write: func(off uint32, p []byte) { calls = append(calls, fmt.Sprintf("write %#x % x", off, p)) },
	})
	s, err := New(3*pageSize, []Block{{Name: "B", Regs: []Reg{
		{Name: "NV_BELOW", Offset: pageSize - 4, Reset: 0x04030201},
		{Name: "NV_ABOVE", Offset: 2 * pageSize, Reset: 0x0d0c0b0a},
	}}}, []Aperture{{Name: "WINDOW", Offset: pageSize, Size: pageSize}}, &b)
	require.NoError(t, err)
	p := make([]byte, 8, 32)
	s.Read(pageSize-4, p)
	require.Equal(t, []byte{1, 2, 3, 4, 0xa0, 0xa1, 0xa2, 0xa3}, p)
	s.Read(2*pageSize-3, p)
	require.Equal(t, []byte{0xa0, 0xa1, 0xa2, 0x0a, 0x0b, 0x0c, 0x0d, 0}, p)
	s.Write(2*pageSize-2, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	require.EqualValues(t, 0x06050403, s.Cell("NV_ABOVE", 0).Get())
	require.Equal(t, []string{"read 0x0 4/4", "read 0xffd 3/3", "write 0xffe 01 02"}, calls)
	require.EqualValues(t, 0x0807, s.Read32(2*pageSize+4), "the rest went to the hole behind")
}

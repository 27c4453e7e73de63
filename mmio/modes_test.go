package mmio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each mode stores and shows bits by this table. Stored 0b1100, written 0b1010:
// every combination of an old and a new bit occurs once.
func TestAccessModes(t *testing.T) {
	for _, c := range []struct {
		mode                  Access
		reads, after, written uint32 // what a read returns and leaves, what a write leaves
	}{
		{RW, 0b1100, 0b1100, 0b1010},
		{RO, 0b1100, 0b1100, 0b1100},
		{WO, 0b0000, 0b1100, 0b1010},
		{W1C, 0b1100, 0b1100, 0b0100},
		{W1S, 0b1100, 0b1100, 0b1110},
		{RC, 0b1100, 0b0000, 0b0000},
	} {
		s, err := New(pageSize, []Block{{Name: "B", Regs: []Reg{{Name: "NV_A", Access: c.mode, Reset: 0b1100}}}}, nil, nil)
		require.NoError(t, err)
		cell := s.Cell("NV_A", 0)
		require.Equal(t, c.reads, s.Read32(0), c.mode)
		require.Equal(t, c.after, cell.Get(), c.mode)
		s.Write32(0, 0b1010)
		require.Equal(t, c.written, cell.Get(), c.mode)
	}
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

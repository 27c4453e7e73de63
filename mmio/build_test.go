package mmio

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewRefuses(t *testing.T) {
	nop := Hooks{Read: func(_ int, v uint32) uint32 { return v }}
	window := Window{Read: func(uint32, []byte) {}, Write: func(uint32, []byte) {}}
	bind := func(name string, h Hooks) *Bindings {
		b := new(Bindings)
		b.On(name, h)
		return b
	}
	bindWindow := func(name string, w Window) *Bindings {
		b := new(Bindings)
		b.OnWindow(name, w)
		return b
	}
	twice := bind("NV_A", nop)
	twice.OnRead("NV_A", nop.Read)
	windowTwice := bindWindow("WINDOW", window)
	windowTwice.OnWindow("WINDOW", window)

	for _, c := range []struct {
		name string
		size uint32
		regs []Reg
		aps  []Aperture
		bind *Bindings
		want []string // each must be in the message
	}{
		{name: "size in mid-page", size: 0x1800, want: []string{"0x1800", "0x1000"}},

		{name: "same offset", regs: []Reg{{Name: "NV_A", Offset: 8}, {Name: "NV_B", Offset: 8}},
			want: []string{"NV_A", "NV_B", "0x000008"}},
		{name: "wide over narrow", regs: []Reg{{Name: "NV_A", Offset: 0xb, Width: 1}, {Name: "NV_B", Offset: 8}},
			want: []string{"NV_A", "NV_B", "0x000008"}},
		{name: "an instance on a register", regs: []Reg{{Name: "NV_A", Offset: 0x18}, {Name: "NV_B", Rep: []Dim{{4, 8}}}},
			want: []string{"NV_A", "NV_B", "0x000018"}},
		{name: "repeated shares a dword", regs: []Reg{
			{Name: "NV_A", Width: 2, Rep: []Dim{{4, 4}}}, {Name: "NV_B", Offset: 6, Width: 2}},
			want: []string{"NV_A", "NV_B", "0x000004", "repeats"}},
		{name: "same name", regs: []Reg{{Name: "NV_A", Offset: 8}, {Name: "NV_A", Offset: 12}},
			want: []string{"NV_A", "0x000008", "0x00000c"}},
		{name: "no name", regs: []Reg{{Offset: 0x14}}, want: []string{"block BLOCK", "0x000014", "no name"}},
		{name: "outside", regs: []Reg{{Name: "NV_A", Offset: 0x1000}}, want: []string{"block BLOCK", "NV_A", "0x001000"}},
		{name: "offsets wrap at 32 bits", regs: []Reg{{Name: "NV_A", Rep: []Dim{{3, 0x80000000}}}}, want: []string{"NV_A", "0x100000000"}},
		{name: "width", regs: []Reg{{Name: "NV_A", Width: 3}}, want: []string{"NV_A", "width 3"}},
		{name: "alignment", regs: []Reg{{Name: "NV_A", Offset: 6}}, want: []string{"NV_A", "4 bytes", "0x000006"}},
		{name: "three dimensions", regs: []Reg{{Name: "NV_A", Rep: make([]Dim, 3)}}, want: []string{"NV_A", "3 dimensions"}},
		{name: "count 0", regs: []Reg{{Name: "NV_A", Rep: []Dim{{0, 4}}}}, want: []string{"NV_A", "0 times"}},
		{name: "count too large", regs: []Reg{{Name: "NV_A", Rep: []Dim{{maxCount + 1, 4}}}}, want: []string{"NV_A", "1073741825 times"}},
		{name: "stride 0", regs: []Reg{{Name: "NV_A", Rep: []Dim{{2, 0}}}}, want: []string{"NV_A", "0x0 apart"}},
		{name: "stride 2", regs: []Reg{{Name: "NV_A", Width: 2, Rep: []Dim{{2, 2}}}}, want: []string{"NV_A", "0x2 apart"}},
		{name: "interleaved dimensions", regs: []Reg{{Name: "NV_A", Rep: []Dim{{2, 0x10}, {3, 0xc}}}},
			want: []string{"NV_A", "0xc", "0x10"}},
		{name: "register mode", regs: []Reg{{Name: "NV_A", Access: accessModes}}, want: []string{"NV_A", "mode 6"}},
		{name: "field mode", regs: []Reg{{Name: "NV_A", Fields: []Field{{Name: "F", Access: 9}}}}, want: []string{"NV_A", "field F", "mode 9"}},
		{name: "reset value", regs: []Reg{{Name: "NV_A", Width: 2, Reset: 0x10000}}, want: []string{"NV_A", "0x10000"}},
		{name: "field outside", regs: []Reg{{Name: "NV_A", Width: 2, Fields: []Field{{Name: "F", Hi: 16, Lo: 3}}}},
			want: []string{"NV_A", "field F 16:3", "16 bits"}},
		{name: "field turned round", regs: []Reg{{Name: "NV_A", Fields: []Field{{Name: "F", Hi: 3, Lo: 4}}}},
			want: []string{"NV_A", "field F 3:4"}},
		{name: "fields overlap", regs: []Reg{{Name: "NV_A", Fields: []Field{
			{Name: "LOW", Hi: 3, Lo: 0}, {Name: "MID", Hi: 9, Lo: 6}, {Name: "HIGH", Hi: 31, Lo: 9}}}},
			want: []string{"NV_A", "MID and HIGH"}},

		{name: "effect without code", regs: []Reg{{Name: "NV_A", Effect: "starts"}}, want: []string{"NV_A", `"starts"`}},
		{name: "code without effect", regs: []Reg{{Name: "NV_A"}}, bind: bind("NV_A", nop), want: []string{"NV_A", "no effect"}},
		{name: "empty code", regs: []Reg{{Name: "NV_A", Effect: "starts"}}, bind: bind("NV_A", Hooks{}), want: []string{"NV_A", `"starts"`}},
		{name: "code for nothing", bind: bind("NV_A", nop), want: []string{"NV_A", "no register"}},
		{name: "code twice", regs: []Reg{{Name: "NV_A", Effect: "starts"}}, bind: twice, want: []string{"NV_A", "twice"}},
		{name: "code for an aperture", aps: []Aperture{{Name: "WINDOW", Size: pageSize}}, bind: func() *Bindings {
			b := bindWindow("WINDOW", window)
			b.On("WINDOW", nop)
			return b
		}(), want: []string{"WINDOW", "no register"}},

		{name: "aperture without window", aps: []Aperture{{Name: "WINDOW", Size: pageSize}}, want: []string{"WINDOW", "no window"}},
		{name: "half a window", aps: []Aperture{{Name: "WINDOW", Size: pageSize}},
			bind: bindWindow("WINDOW", Window{Read: window.Read}), want: []string{"WINDOW", "half"}},
		{name: "window for nothing", bind: bindWindow("WINDOW", window), want: []string{"WINDOW", "no aperture"}},
		{name: "window for a register", regs: []Reg{{Name: "NV_A"}}, bind: bindWindow("NV_A", window), want: []string{"NV_A", "no aperture"}},
		{name: "window twice", aps: []Aperture{{Name: "WINDOW", Size: pageSize}}, bind: windowTwice, want: []string{"WINDOW", "twice"}},
		{name: "aperture in mid-page", size: 2 * pageSize, aps: []Aperture{{Name: "WINDOW", Offset: 0x800, Size: pageSize}},
			bind: bindWindow("WINDOW", window), want: []string{"WINDOW", "0x800"}},
		{name: "empty aperture", aps: []Aperture{{Name: "WINDOW"}}, bind: bindWindow("WINDOW", window), want: []string{"WINDOW", "0x0 bytes"}},
		{name: "aperture outside", aps: []Aperture{{Name: "WINDOW", Offset: pageSize, Size: pageSize}},
			bind: bindWindow("WINDOW", window), want: []string{"WINDOW", "outside"}},
		{name: "aperture wraps", aps: []Aperture{{Name: "WINDOW", Offset: pageSize, Size: 0xfffff000}},
			bind: bindWindow("WINDOW", window), want: []string{"WINDOW", "outside"}},
		{name: "aperture on a register", size: 2 * pageSize, regs: []Reg{{Name: "NV_A", Offset: 0x1ffc}},
			aps: []Aperture{{Name: "WINDOW", Size: 2 * pageSize}}, bind: bindWindow("WINDOW", window), want: []string{"NV_A", "WINDOW", "0x001ffc"}},
		{name: "aperture on an aperture", size: 2 * pageSize,
			aps: []Aperture{{Name: "FIRST", Size: 2 * pageSize}, {Name: "SECOND", Offset: pageSize, Size: pageSize}},
			bind: func() *Bindings {
				b := bindWindow("FIRST", window)
				b.OnWindow("SECOND", window)
				return b
			}(), want: []string{"FIRST", "SECOND", "0x001000"}},
		{name: "aperture named as a register", size: 2 * pageSize, regs: []Reg{{Name: "NV_A", Offset: 0x1000}},
			aps: []Aperture{{Name: "NV_A", Size: pageSize}}, bind: bindWindow("NV_A", window), want: []string{"NV_A", "0x001000", "0x000000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(cmp.Or(c.size, pageSize), []Block{{Name: "BLOCK", Regs: c.regs}}, c.aps, c.bind)
			require.Error(t, err)
			require.Nil(t, s)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestNewRefusesTooManyRows(t *testing.T) {
	regs := make([]Reg, 1<<16)
	for i := range regs {
		regs[i] = Reg{Name: fmt.Sprintf("NV_R%d", i), Offset: uint32(i) * 4}
	}
	_, err := New(1<<20, []Block{{Name: "B", Regs: regs[:1<<16-1]}}, nil, nil)
	require.NoError(t, err)
	_, err = New(1<<20, []Block{{Name: "B", Regs: regs}}, nil, nil)
	require.ErrorContains(t, err, regs[1<<16-1].Name)
	require.ErrorContains(t, err, "65535")
}

func TestCellPanicsOnWrongNames(t *testing.T) {
	b := new(Bindings)
	b.OnWindow("WINDOW", Window{Read: func(uint32, []byte) {}, Write: func(uint32, []byte) {}})
	s, err := New(2*pageSize, []Block{{Name: "B", Regs: []Reg{{Name: "NV_A", Offset: pageSize, Rep: []Dim{{2, 4}}}}}},
		[]Aperture{{Name: "WINDOW", Size: pageSize}}, b)
	require.NoError(t, err)
	require.PanicsWithValue(t, "mmio: no register named NV_B", func() { s.Cell("NV_B", 0) })
	require.PanicsWithValue(t, "mmio: NV_A has 2 instances, not one numbered 2", func() { s.Cell("NV_A", 2) })
	require.PanicsWithValue(t, "mmio: WINDOW is an aperture and stores nothing", func() { s.Cell("WINDOW", 0) })
}

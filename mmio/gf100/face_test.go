package gf100

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio"
)

// ownerBlocks are the blocks whose effects the owner of the space binds.
var ownerBlocks = map[string]bool{"PFIFO": true, "PCCSR": true, "PPBDMA": true, "PMMU": true}

// testingT is what the helpers need of a test or a property.
type testingT interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// bench is a face with its space, and an owner that answers nothing.
type bench struct {
	*mmio.Space
	face *Face
	now  uint64
}

func newBench(t testingT, cfg FaceConfig) *bench {
	t.Helper()
	b := &bench{}
	if cfg.Clock == nil {
		cfg.Clock = func() uint64 { return b.now }
	}
	f, err := NewFace(cfg)
	require.NoError(t, err)
	var bind mmio.Bindings
	f.Bind(&bind)
	bindOwner(&bind)
	s, err := mmio.New(SpaceSize, Blocks(), Apertures(), &bind)
	require.NoError(t, err)
	f.Attach(s)
	b.Space, b.face = s, f
	return b
}

func bindOwner(bind *mmio.Bindings) {
	for _, blk := range Blocks() {
		for _, r := range blk.Regs {
			if ownerBlocks[blk.Name] && r.Effect != "" {
				bind.OnRead(r.Name, func(_ int, v uint32) uint32 { return v })
			}
		}
	}
	bind.OnWindow("PRAMIN", mmio.Window{Read: func(uint32, []byte) {}, Write: func(uint32, []byte) {}})
}

func TestConstants(t *testing.T) {
	for _, c := range []struct {
		cfg  FaceConfig
		want map[uint32]uint32
	}{
		{FaceConfig{}, map[uint32]uint32{
			0x000000: 0x0c0000a3, 0x000004: 0, 0x101000: 0x00400000, 0x022500: 1, 0x02240c: 2, 0x0212cc: 0x400,
			0x022438: 4, 0x022554: 0, 0x11020c: 128, 0x11320c: 128, 0x11420c: 0, 0x100800: 4, 0x121c74: 4,
			0x17e8dc: 0x20000000, 0x100c80: 0x00ff8000, 0x022430: 4, 0x022434: 4, 0x409604: 0x00040004,
			0x502608: 4, 0x50a608: 4, 0x512608: 3, 0x51a608: 3, 0x409108: 0x4040, 0x41a108: 0x2020,
			0x40912c: 0x3303, 0x41a12c: 0x3303, 0x104108: 0x4020, 0x105108: 0x4020, 0x10412c: 3, 0x10512c: 3,
		}},
		{FaceConfig{VRAM: 6 << 30}, map[uint32]uint32{ // a Quadro 6000
			0x22438: 6, 0x11020c: 0x400, 0x11520c: 0x400, 0x121c74: 6, 0x121c78: 4, 0x409604: 0x00060004, 0x100800: 6,
		}},
		{FaceConfig{TPCs: []int{4, 3}}, map[uint32]uint32{ // the fuse masks say the same as the counts
			0x22504: 0b1100, 0x22508: 0b0000, 0x2250c: 0b1000, 0x409604: 0x00040002, 0x512608: 0,
		}},
	} {
		b := newBench(t, c.cfg)
		for off, want := range c.want {
			require.Equalf(t, want, b.Read32(off), "%06x %s", off, b.NameOf(off))
		}
	}
}

func TestFaceConfigRefused(t *testing.T) {
	for want, cfg := range map[string]FaceConfig{
		"VRAM of 1048576 bytes: need a multiple of 1 MiB, from 64 MiB to 6 GiB": {VRAM: 1 << 20},
		"VRAM of 67108865 bytes":                 {VRAM: 64<<20 + 1},
		"VRAM of 8589934592 bytes":               {VRAM: 8 << 30},
		"5 GPCs: need 1 to 4":                    {TPCs: []int{1, 1, 1, 1, 1}},
		"0 GPCs":                                 {TPCs: []int{}},
		"GPC 1 has 5 TPCs: need 1 to 4":          {TPCs: []int{4, 5}},
		"GPC 0 has 0 TPCs":                       {TPCs: []int{0}},
		"5 TPCs [4 1]: drivers know no chip":     {TPCs: []int{4, 1}},
		"ROM of 1048577 bytes: the window holds": {ROM: make([]byte, 1<<20+1)},
	} {
		_, err := NewFace(cfg)
		require.ErrorContains(t, err, want)
	}
}

// For any size, the partitions have all of it in equal parts.
func TestPartitionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vram := rapid.Uint64Range(64, 6144).Draw(t, "MiB") << 20
		n, mib := partitions(vram)
		if n < 1 || n > MaxFBPs || uint64(n)*uint64(mib)<<20 != vram {
			t.Fatalf("%d bytes became %d partitions of %d MiB", vram, n, mib)
		}
		for more := n + 1; more <= MaxFBPs; more++ {
			if (vram>>20)%uint64(more) == 0 {
				t.Fatalf("%d bytes divide by %d, but became %d partitions", vram, more, n)
			}
		}
	})
}

func TestPROM(t *testing.T) {
	rom := []byte{0x55, 0xaa, 0x10, 0xcb, 1, 2}
	b := newBench(t, FaceConfig{ROM: rom})
	require.Equal(t, uint32(0xcb10aa55), b.Read32(0x300000))
	require.Equal(t, uint32(0xffff0201), b.Read32(0x300004), "ones beyond the ROM")
	require.Equal(t, uint32(0xffffffff), b.Read32(0x3ffffc))
	b.Write32(0x300000, 0)
	require.Equal(t, uint32(0xcb10aa55), b.Read32(0x300000))
}

func TestTemperature(t *testing.T) {
	temp := 61
	b := newBench(t, FaceConfig{Temperature: func() int { return temp }})
	require.Equal(t, uint32(1), b.Read32(0x212a8))
	require.Equal(t, uint32(61), b.Read32(0x20400))
	temp = -40
	require.Zero(t, b.Read32(0x20400))
	temp = 1000
	require.Equal(t, uint32(255), b.Read32(0x20400))
}

func TestCRTC(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write(0x6013d4, []byte{0x1f, 0x57}) // index and data in one access
	b.Write(0x6013d4, []byte{0x1e, 0x11})
	b.Write(0x6013d4, []byte{0x1f})
	var p [1]byte
	b.Read(0x6013d5, p[:])
	require.Equal(t, byte(0x57), p[0])
}

func TestUnitReset(t *testing.T) {
	b := newBench(t, FaceConfig{})
	var bits []uint32
	b.face.OnUnitReset(func(v uint32) { bits = append(bits, v) })
	b.Write32(0x200, 0xffffffff)
	b.Write32(0x200, 0xffffffff&^enablePFIFO)
	b.Write32(0x200, 0xffffffff)
	b.boot(0x10a000)
	require.NotZero(t, b.Read32(0x10a4d0))
	b.Write32(0x200, 0xffffffff&^enablePMU)
	require.Zero(t, b.Read32(0x10a4d0))
	require.Equal(t, []uint32{enablePFIFO, enablePMU}, bits)
}

func TestTwoFaces(t *testing.T) {
	a, b := newBench(t, FaceConfig{}), newBench(t, FaceConfig{})
	a.boot(0x409000)
	a.Write32(0x1140, 1)
	require.Zero(t, b.Read32(0x409800)|b.Read32(0x1140))
}

// FuzzFace throws accesses at all of BAR0: nothing that a guest writes may end
// the server or leave the tree inconsistent.
func FuzzFace(f *testing.F) {
	f.Add([]byte{0x00, 0x40, 0x91, 0x00, 2, 0, 0, 0})
	f.Add([]byte{0x80, 0xa1, 0x10, 0x84, 0, 0, 0, 1, 0x00, 0xa1, 0x10, 0x84, 2, 0, 0, 0, 0xa0, 0xa4, 0x10, 0x84, 9, 0, 0, 0})
	f.Add([]byte{0x04, 0x91, 0x00, 0x81, 0xff, 0x20, 0x94, 0x00, 0x84, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x88, 0x44, 0x40, 0x88, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
	f.Add([]byte{0xff, 0xff, 0xff, 0x88, 1, 2, 3, 4, 5, 6, 7, 8})
	b := newBench(f, FaceConfig{})
	b.face.OnMethod(func(_, m, _ uint32) {
		if m%4 != 0 {
			f.Fatalf("method %#x", m)
		}
	})
	f.Fuzz(func(t *testing.T, in []byte) {
		for len(in) >= 4 {
			off, op := binary.LittleEndian.Uint32(in)&0xffffff, in[3]
			in = in[4:]
			n := int(op&15) % 9
			if op&0x80 == 0 {
				b.Read(off, make([]byte, n))
			} else {
				n = min(n, len(in))
				b.Write(off, in[:n])
				in = in[n:]
			}
			b.now += uint64(op)
			level, edge := b.face.Settle(b.face.tree.fifo)
			if edge && !level {
				t.Fatal("an edge without a line")
			}
			if at, armed := b.face.NextAlarm(); armed && at < b.now {
				t.Fatalf("an alarm in the past: %d, now %d", at, b.now)
			}
		}
	})
}

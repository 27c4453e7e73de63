package gf100

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

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

func TestRowNames(t *testing.T) {
	good := regexp.MustCompile(`^NV_[A-Z0-9_]+$`)
	for _, blk := range Blocks() {
		require.NotEmpty(t, blk.Source, blk.Name)
		for _, r := range blk.Regs {
			require.Regexp(t, good, r.Name)
		}
	}
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
		{FaceConfig{Display: true}, map[uint32]uint32{0x22500: 0, 0x614004: 0}},
		{FaceConfig{NoSensor: true}, map[uint32]uint32{0x212a8: 0}},
	} {
		b := newBench(t, c.cfg)
		for off, want := range c.want {
			require.Equalf(t, want, b.Read32(off), "%06x %s", off, b.NameOf(off))
		}
	}
}

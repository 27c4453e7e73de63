package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/ablation"
)

// probe walks through the registers as a driver's probe does, in its order. It checks each
// value that the driver waits for or divides by, and returns the names of those that would
// make it give up.
type probe struct {
	*bench
	failed []string
}

func (p *probe) check(name string, ok bool) {
	if !ok {
		p.failed = append(p.failed, name)
	}
}

// wait reads until the masked value is want, for as long as a driver would.
func (p *probe) wait(name string, off, mask, want uint32) {
	for range 64 {
		if p.Read32(off)&mask == want {
			return
		}
		p.now += 32
	}
	p.failed = append(p.failed, name)
}

func (p *probe) mask(off, mask, set uint32) { p.Write32(off, p.Read32(off)&^mask|set) }

func (p *probe) device() {
	p.check("boot0", p.Read32(0) == Boot0)
	p.check("endian", p.Read32(4) == 0)
	p.check("crystal", p.Read32(0x101000)&0x400040 == 0x400000)
	p.check("headless", p.Read32(0x22500)&1 == 1)
	p.check("posted", p.Read32(0x2240c)&2 == 2)
	p.mask(0x88050, 1, 0)
	p.check("rom", p.Read32(0x300000) == 0xcb10aa55)
	p.mask(0x88050, 0, 1)
	p.Write(0x88704, []byte{0xff})
}

func (p *probe) preinit() {
	for _, off := range []uint32{0x140, 0x144} {
		p.Write32(off, 0)
	}
	p.Read32(0x140)
	p.Write(0x6013d4, []byte{0x1f})
	p.Write(0x6013d5, []byte{0x99})
	p.Read(0x6013d5, make([]byte, 1))
	p.Write32(0x100c10, 0x1000)
	for _, bit := range []uint32{1, 6, 7, 8, 12, 13, 15, 17} {
		p.mask(0x200, 1<<bit, 0)
		p.mask(0x200, 0, 1<<bit)
	}
	p.Write32(0x200, 0xffffffff)
	p.Write32(0x20000, 0)
	p.Write32(0x20100, 0xffffffff)
	p.Write32(0x1100, 0x10000)
	p.Write32(0x9140, 0)
	for _, off := range []uint32{0xe050, 0xe054, 0xe068, 0xe06c, 0xe070, 0xe074} {
		p.Write32(off, p.Read32(off))
	}
	p.mask(0x640, 0xffffffff, 0x5b36b161)
	p.mask(0x644, 0xffffffff, 0x5b36b161)
}

func (p *probe) hostUnits() {
	p.mask(0x2241c, 0, 1)
	for _, off := range []uint32{0x88460, 0x88088, 0x8807c, 0x88080, 0x8841c} {
		p.Read32(off)
	}
	for _, off := range []uint32{0x122310, 0x122348, 0x12232c, 0x122330, 0x122334} {
		p.mask(off, 0x3ffff, 0x800)
	}
	p.mask(0x121c4c, 0x3f, 2)
	p.wait("ring", 0x121c4c, 0x3f, 0)
	p.Write32(0x1100, 0xffffffff)
	p.Write32(0x1140, 0xe)
	p.Write32(0x9220, 2)
	p.Write32(0x9200, 0x144)
	p.Write32(0x9210, 0x7d)
	p.Write32(0x9410, 0x17)
	p.Write32(0x9400, 0x12345678)
	first := p.Read32(0x9400)
	p.now += 1000
	p.check("time moves", p.Read32(0x9400) != first)
}

func (p *probe) memory() {
	fbps := p.Read32(0x22438)
	p.check("partitions", fbps != 0)
	p.check("partition mask", p.Read32(0x22554) == 0)
	size := p.Read32(0x11020c)
	for i := range fbps {
		p.check("equal partitions", p.Read32(0x11020c+i*0x1000) == size && size != 0)
	}
	p.check("slices", p.Read32(0x17e8dc)>>28 != 0)
	for i := range uint32(16) {
		p.mask(0x17ea44, 0xf, i)
		for off := uint32(0x17ea48); off <= 0x17ea58; off += 4 {
			p.Write32(off, i)
		}
	}
	p.mask(0x17e820, 0x100000, 0)
	p.Write32(0x17e8d8, fbps)
	p.Write32(0x17e8d4, 0)
	p.mask(0x17e8c0, 2, 2)
	p.Write32(0x17e8cc, 0)
	p.Write32(0x17e8d0, 63)
	p.Write32(0x17e8c8, 4)
	for c := range fbps {
		for s := range p.Read32(0x17e8dc) >> 28 {
			p.wait("comptags", 0x1410c8+c*0x2000+s*0x400, 0xffffffff, 0)
		}
	}
	p.mask(0x100c80, 1, 0)
	for _, off := range []uint32{0x70004, 0x70010} {
		p.Write32(off, 1)
		p.wait("cache flush", off, 3, 0)
	}
	p.Write32(0x70000, 1)
	p.wait("host flush", 0x70000, 2, 0)
	p.check("invalidate room", p.Read32(0x100c80)&0xff0000 != 0)
	p.Write32(0x100cb8, 0x1fe480)
	p.Write32(0x100cbc, 0x80000005)
	p.wait("invalidate done", 0x100c80, 0x8000, 0x8000)
}

func (p *probe) power() {
	if p.Read32(0x200)&(1<<13) != 0 {
		p.Write32(0x10a014, 0xffff)
		p.wait("pmu idle", 0x10a04c, 0xffffffff, 0)
	}
	p.mask(0x200, 1<<13, 0)
	p.mask(0x200, 0, 1<<13)
	p.wait("pmu scrub", 0x10a10c, 6, 0)
	p.boot(0x10a000)
	p.check("pmu rings", p.Read32(0x10a4d0) != 0 && p.Read32(0x10a4dc) != 0)
	p.Write32(0x10a010, 0xe0)
	p.mask(0x22400, 0, 0x800)
	p.mask(0x21000, 0, 1)
	p.check("speedo", p.Read32(0x212cc) != 0)
	if p.Read32(0x212a8) == 1 {
		p.mask(0x20008, 0x80008000, 0x80000000)
		p.mask(0x2000c, 0x80000003, 0)
		p.check("temperature", p.Read32(0x20400) != 0)
	} else {
		p.failed = append(p.failed, "sensor")
	}
	for _, off := range []uint32{0xe720, 0xe724, 0xe728, 0xe800, 0xe820, 0x132000, 0x132020, 0x1373f0} {
		p.Read32(off)
	}
	for i := range uint32(16) {
		p.Read32(0x137160 + i*4)
		p.Read32(0x137250 + i*4)
	}
	p.Read32(0x137000)
}

func (p *probe) fifo() {
	save := p.Read32(0x204)
	p.Write32(0x204, 0xffffffff)
	p.check("pbdmas", p.Read32(0x204) == 1<<PBDMAs-1)
	p.Write32(0x204, save)
	p.wait("runlist", 0x227c, 0x100000, 0)
}

func (p *probe) graphics() {
	units := p.Read32(0x409604)
	p.check("gpcs", units&0x1f != 0)
	p.check("rops", units>>16&0x1f != 0)
	tpcs := uint32(0)
	for g := range units & 0x1f {
		tpcs += p.Read32(0x502608 + g*0x8000)
	}
	p.check("tpcs", tpcs != 0)
	p.mask(0x400500, 0x10001, 0)
	p.check("idle", p.Read32(0x400700)|p.Read32(0x40060c) == 0)
	for _, base := range []uint32{0x409000, 0x41a000} {
		p.check("falcon memory", p.Read32(base+0x108) != 0 && p.Read32(base+0x12c) != 0)
	}
	for _, off := range []uint32{0x400100, 0x40013c, 0x400108, 0x400118, 0x40011c, 0x400138, 0x404000, 0x404600, 0x408030, 0x406018, 0x404490, 0x405840} {
		p.Write32(off, 0xffffffff)
	}
	p.Write32(0x260, 0)
	p.upload(0x409000, ramp(768, 1), ramp(193, 0x10))
	p.upload(0x41a000, ramp(448, 1), ramp(25, 0x20))
	p.check("data read back", p.data(0x409000, 16, 1)[0] == 0x14 && p.data(0x41a000, 8, 1)[0] == 0x22)
	p.Write32(0x260, 1)
	p.Write32(0x40910c, 0)
	p.Write32(0x409100, 2)
	p.wait("fecs start", 0x409800, 1<<31, 1<<31)
	p.check("context size", p.Read32(0x409804) != 0 && p.Read32(0x409804)%256 == 0)
	p.Write32(0x404170, 0x12)
	p.wait("power mode", 0x404170, 0x10, 0)
	p.Write32(0x409614, 0x70)
	p.mask(0x409614, 0x700, 0x700)
	p.Write32(0x404170, 0x10)
	p.Write32(0x40802c, 1)
	p.Write32(0x409840, 1<<31)
	p.Write32(0x409500, 0x80001234)
	p.Write32(0x409504, 1)
	p.wait("bind", 0x409800, 1<<31, 1<<31)
	p.Write32(0x400208, 0x80000000)
	for i := range uint32(32) {
		p.Write32(0x400204, i)
		p.Write32(0x400200, i)
		p.wait("icmd", 0x400700, 4, 0)
	}
	p.mask(0x409b04, 1<<31, 0)
	p.Write32(0x409000, 0x100)
	p.wait("switch", 0x409b00, 1<<31, 0)
}

func (p *probe) copyEngines() {
	for _, base := range []uint32{0x104000, 0x105000} {
		p.check("ce memory", p.Read32(base+0x108)&0x1ff != 0 && p.Read32(base+0x108)>>9&0x1ff != 0)
		p.Write32(base+0x14, 0xffffffff)
		p.boot(base)
		p.Write32(base+0x48, 3)
		p.Write32(base+0x84, (base-0x104000)/0x1000)
	}
}

func (p *probe) perfmon() {
	p.mask(0x200, 1<<28, 0)
	p.mask(0x200, 0, 1<<28)
	for _, off := range []uint32{0x22430, 0x22504, 0x22584, 0x22548, 0x225c8} {
		p.Read32(off)
	}
}

// display is a driver's accesses to a display engine without a connector.
func (p *probe) display() {
	p.Write32(0x610184, p.Read32(0x614004))
	for i := range uint32(2) {
		for n := range uint32(4) {
			p.Write32(0x610190+i*0x10+n*4, p.Read32(0x616100+i*0x800+n*4))
		}
	}
	for i := range uint32(3) {
		p.Write32(0x6101d0+i*4, p.Read32(0x61a000+i*0x800))
		p.Write32(0x6101f0+i*4, p.Read32(0x61e000+i*0x800))
	}
	for i := range uint32(4) {
		p.Write32(0x6101e0+i*4, p.Read32(0x61c000+i*0x800))
	}
	p.check("no vga handover", p.Read32(0x610024)&0x100 == 0)
	p.Write32(0x610010, 0x1fe409)
	p.Write32(0x61002c, 0x370)
	p.Write32(0x610028, 0)
	p.Write32(0x610020, 0xffffffff)
	p.Write32(0x610024, 0xffffffff)
	p.check("image not in memory", p.Read32(0x619f04)&8 == 0)
}

// suspend switches everything off, as an unbind or a poweroff does.
func (p *probe) suspend() {
	for _, base := range []uint32{0x84000, 0x85000, 0x86000, 0x104000, 0x105000} {
		p.mask(base+0x48, 3, 0)
		p.Write32(base+0x14, 0xffffffff)
	}
	p.mask(0x400500, 1, 0)
	p.Write32(0x10a014, 0x60)
	p.Write32(0x9140, 0)
	p.Write32(0x20000, 0)
	p.mask(0x1704, 1<<31, 0)
	p.mask(0x1714, 1<<31, 0)
	p.Write32(0x140, 0)
	p.Write32(0x144, 0)
}

func (p *probe) run() []string {
	p.device()
	p.preinit()
	p.hostUnits()
	p.memory()
	p.power()
	p.fifo()
	p.graphics()
	p.copyEngines()
	p.perfmon()
	p.Write32(0x140, 1)
	p.Write32(0x144, 1)
	return p.failed
}

func newProbe(t testingT, cfg FaceConfig) *probe {
	cfg.ROM = append([]byte{0x55, 0xaa, 0x10, 0xcb}, make([]byte, 8188)...)
	return &probe{bench: newBench(t, cfg)}
}

// Every poll and every divisor of a probe, for the boards that can be configured,
// twice in a row as an unbind and bind does, and without touching a register that
// no row declares.
func TestProbe(t *testing.T) {
	for name, cfg := range map[string]FaceConfig{
		"default": {}, "64 MiB": {VRAM: 64 << 20}, "6 GiB": {VRAM: 6 << 30}, "odd": {VRAM: 1021 << 20},
		"one TPC": {TPCs: []int{1}}, "fifteen TPCs": {TPCs: []int{4, 4, 4, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbe(t, cfg)
			require.Empty(t, p.run())
			p.suspend()
			require.Empty(t, p.run())
			m := p.Missed()
			require.Zero(t, m.Outside)
			require.Empty(t, m.Holes)
			require.Empty(t, p.face.cfg.Config.Missed().Holes)
			p.Space.Reset()
			p.face.Reset()
			require.Empty(t, p.run())
		})
	}
}

func TestProbeWithDisplay(t *testing.T) {
	p := newProbe(t, FaceConfig{})
	require.NoError(t, p.MakePlain("NV_PUNITS_HW_MISC_DISABLE", 0))
	require.Equal(t, []string{"headless"}, p.run())
	p.failed = nil
	p.display()
	require.Empty(t, p.failed)
	require.Empty(t, p.Missed().Holes)
}

// What each ablation takes from the probe above. The two lists must name the same
// ablations: one that breaks nothing here proves nothing there.
func TestAblations(t *testing.T) {
	breaks := map[string][]string{
		"not-posted":             {"posted"},
		"straps-zero":            {"crystal"},
		"endian":                 {"endian"},
		"speedo-zero":            {"speedo"},
		"display-on":             {"headless"},
		"sensor-off":             {"sensor"},
		"no-partitions":          {"partitions"},
		"no-gpcs":                {"gpcs", "rops", "tpcs"},
		"no-tpcs":                {"tpcs"},
		"ce-no-memory":           {"ce memory", "ce memory"},
		"ce-no-memory-on-demand": {"ce memory", "ce memory"},
		"pbdmas-unmasked":        {"pbdmas"},
		"flush-plain":            nil, // reads back one, and bit 1 is what counts
		"power-mode-plain":       {"power mode"},
		"clock-frozen":           {"time moves"},
		"mmu-never-done":         {"invalidate room", "invalidate done"},
		"pmu-dead":               {"pmu rings"},
		"fecs-dead":              {"fecs start", "context size", "bind"},
		"fecs-no-switch":         {"switch"},
	}
	for _, a := range ablation.Rows {
		t.Run(a.Name, func(t *testing.T) {
			want, known := breaks[a.Name]
			require.True(t, known, "no expectation for this ablation")
			p := newProbe(t, FaceConfig{})
			require.NoError(t, a.Apply(p.Space))
			require.Equal(t, want, p.run())
			p.failed = nil
			p.Space.Reset()
			p.face.Reset()
			require.Equal(t, want, p.run(), "after a reset")
		})
	}
	require.Len(t, ablation.Rows, len(breaks))
	require.ErrorContains(t, ablation.Row{Name: "x", Registers: []string{"NV_NONE"}}.Apply(newBench(t, FaceConfig{}).Space), "ablation x")
}

package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	p.check("rom", p.Read32(0x300000) == 0xcb10aa55)
	p.mask(0x121c4c, 0x3f, 2)
	p.wait("ring", 0x121c4c, 0x3f, 0)
	p.Write32(0x9410, 0x17)
	p.Write32(0x9400, 0x12345678)
	first := p.Read32(0x9400)
	p.now += 1000
	p.check("time moves", p.Read32(0x9400) != first)
	p.Write32(0x200, 0)
	p.Write32(0x200, 0xffffffff)
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
	p.Write32(0x17e8c8, 4)
	for c := range fbps {
		for s := range p.Read32(0x17e8dc) >> 28 {
			p.wait("comptags", 0x1410c8+c*0x2000+s*0x400, 0xffffffff, 0)
		}
	}
	for _, off := range []uint32{0x70004, 0x70010} {
		p.Write32(off, 1)
		p.wait("cache flush", off, 3, 0)
	}
	p.Write32(0x70000, 1)
	p.wait("host flush", 0x70000, 2, 0)
	p.check("invalidate room", p.Read32(0x100c80)&0xff0000 != 0)
	p.Write32(0x100cbc, 0x80000005)
	p.wait("invalidate done", 0x100c80, 0x8000, 0x8000)
}

func (p *probe) power() {
	p.wait("pmu idle", 0x10a04c, 0xffffffff, 0)
	p.mask(0x200, 1<<13, 0)
	p.mask(0x200, 0, 1<<13)
	p.wait("pmu scrub", 0x10a10c, 6, 0)
	p.boot(0x10a000)
	p.check("pmu rings", p.Read32(0x10a4d0) != 0 && p.Read32(0x10a4dc) != 0)
	p.check("speedo", p.Read32(0x212cc) != 0)
	p.check("sensor", p.Read32(0x212a8) == 1)
	p.check("temperature", p.Read32(0x20400) != 0)
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
	p.check("idle", p.Read32(0x400700)|p.Read32(0x40060c) == 0)
	for _, base := range []uint32{0x409000, 0x41a000} {
		p.check("falcon memory", p.Read32(base+0x108) != 0 && p.Read32(base+0x12c) != 0)
	}
	p.upload(0x409000, ramp(768, 1), ramp(193, 0x10))
	p.upload(0x41a000, ramp(448, 1), ramp(25, 0x20))
	p.check("data read back", p.data(0x409000, 16, 1)[0] == 0x14 && p.data(0x41a000, 8, 1)[0] == 0x22)
	p.Write32(0x409100, 2)
	p.wait("fecs start", 0x409800, 1<<31, 1<<31)
	p.check("context size", p.Read32(0x409804) != 0 && p.Read32(0x409804)%256 == 0)
	p.Write32(0x404170, 0x12)
	p.wait("power mode", 0x404170, 0x10, 0)
	p.Write32(0x409840, 1<<31)
	p.Write32(0x409500, 0x80001234)
	p.Write32(0x409504, 1)
	p.wait("bind", 0x409800, 1<<31, 1<<31)
	p.mask(0x409b04, 1<<31, 0)
	p.Write32(0x409000, 0x100)
	p.wait("switch", 0x409b00, 1<<31, 0)
}

func (p *probe) copyEngines() {
	for _, base := range []uint32{0x104000, 0x105000} {
		p.check("ce memory", p.Read32(base+0x108)&0x1ff != 0 && p.Read32(base+0x108)>>9&0x1ff != 0)
		p.boot(base)
	}
}

func (p *probe) run() []string {
	p.failed = nil
	for _, step := range []func(){p.device, p.memory, p.power, p.fifo, p.graphics, p.copyEngines} {
		step()
	}
	return p.failed
}

func newProbe(t testingT, cfg FaceConfig) *probe {
	cfg.ROM = append([]byte{0x55, 0xaa, 0x10, 0xcb}, make([]byte, 8188)...)
	return &probe{bench: newBench(t, cfg)}
}

// Every poll and every divisor of a probe, for the boards that can be configured,
// twice in a row as an unbind and bind does. Kernels have the other accesses: tests/e2e.
func TestProbe(t *testing.T) {
	for name, cfg := range map[string]FaceConfig{
		"default": {}, "64 MiB": {VRAM: 64 << 20}, "6 GiB": {VRAM: 6 << 30}, "odd": {VRAM: 1021 << 20},
		"one TPC": {TPCs: []int{1}}, "fifteen TPCs": {TPCs: []int{4, 4, 4, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbe(t, cfg)
			require.Empty(t, p.run())
			require.Empty(t, p.run())
			require.Empty(t, p.Missed().Holes)
			p.Space.Reset()
			p.face.Reset()
			require.Empty(t, p.run())
		})
	}
}

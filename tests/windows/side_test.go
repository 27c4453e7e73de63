package windows

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	carddriver "github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/pci"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/cards"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// function is a GPU as QEMU reaches it.
type function interface {
	ReadBAR(bar int, off uint64, p []byte)
	WriteBAR(bar int, off uint64, p []byte)
	Reset() error
}

type mappable interface {
	OpenWindows() error
	CloseWindows() error
	Windows() []aperture.Region
}

// side is one of the two GPUs.
type side struct {
	function
	layout
	chip
	maps   mappable
	stats  *aperture.Stats
	mapped []mapping
	// patient waits after each write of a register until its effect is complete.
	patient bool
}

type mapping struct {
	bar int
	off uint64
	mem []byte
}

// patience bounds waits for events that must happen, on a machine that also has other work.
const patience = rig.Patience

// The GPUs are small, so that a few pages meet often.
const (
	vramSize = rig.VRAM // of a GF100
	bar1Size = 2 << 20
	bar3Size = 1 << 20
	pollSize = gf100.PollSize
	page     = shadowpt.SmallPage
)

var shape = pci.Options{BAR1: bar1Size, BAR3: bar3Size}

// offer is what a client may map.
type offer = passthrough.Config

// everything is all but the doorbells.
var everything = offer{Map: aperture.MapAll}

// setups are the ways to a guest.
var setups = map[string]func(t testing.TB, o offer) *side{
	"pass-through": func(t testing.TB, o offer) *side {
		c, err := soft.New(soft.Config{VRAM: vramSize, PCI: shape})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		f := passthrough.New(c, o)
		s := &side{function: f, layout: layoutGF100, maps: f, stats: f.Stats()}
		s.chip = fermi{s}
		return open(t, s)
	},
	"virtual":             func(t testing.TB, o offer) *side { return virtual(t, o, layoutGF100, nil) },
	"virtual, own spaces": func(t testing.TB, o offer) *side { return virtual(t, o, layoutGF100, cards.Own) },
	"virtual, slow spaces": func(t testing.TB, o offer) *side {
		scale.ReleaseOnly(t) // the isolation suite has such a card, too
		return virtual(t, o, layoutGF100, cards.Slow)
	},
	"virtual GH100": func(t testing.TB, o offer) *side {
		ram, err := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED) // both sides use it at once
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(ram)) })
		s := virtual(t, o, layoutGH100, nil)
		s.chip = &hopper{side: s, ram: ram}
		require.NoError(t, s.maps.(*serve.Virtual).Guest.MapDMA(ramBase, card.Mapping{Mem: ram, Write: true}))
		return s
	},
}

// virtual is a guest of a shared card, whose driver gpu may hide.
func virtual(t testing.TB, o offer, l layout, gpu func(card.GPU) card.GPU) *side {
	c, err := soft.New(soft.Config{VRAM: 4 * l.vram})
	require.NoError(t, err)
	agg := sharer(t, c, gpu)
	device := serve.Chip(serve.GF100{PCI: shape})
	if l.format == shadowpt.Hopper {
		device = serve.GH100{PCI: shape}
	}
	v, err := serve.NewVirtual(agg, aggregator.GuestConfig{Name: "a", VRAM: l.vram, Map: o.Map, MapLimits: o.Limits}, device)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, v.Close())
		require.NoError(t, agg.Close())
		require.NoError(t, c.Close())
	})
	s := &side{function: v.GPU, layout: l, maps: v, stats: &v.Guest.Stats().Windows.Mapped}
	s.chip = fermi{s}
	return open(t, s)
}

// open attaches a client, which maps all that is offered.
func open(t testing.TB, s *side) *side {
	s.attach(t)
	t.Cleanup(func() { s.detach(t) })
	return s
}

// restart resets the GPU and starts a driver.
func (s *side) restart(t require.TestingT) {
	require.NoError(t, s.Reset())
	s.boot()
}

func (s *side) attach(t require.TestingT) {
	require.NoError(t, s.maps.OpenWindows())
	for _, r := range s.maps.Windows() {
		for _, a := range r.Areas {
			mem, err := unix.Mmap(int(r.File.Fd()), int64(a.Offset), int(a.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			require.NoError(t, err)
			s.mapped = append(s.mapped, mapping{r.BAR, a.Offset, mem})
		}
	}
}

func (s *side) detach(t require.TestingT) {
	require.NoError(t, s.maps.CloseWindows())
	for _, m := range s.mapped {
		require.NoError(t, unix.Munmap(m.mem))
	}
	s.mapped = nil
}

// direct is what is mapped of n bytes at off, or nil.
func (s *side) direct(bar int, off uint64, n int) []byte {
	for _, m := range s.mapped {
		if m.bar == bar && off >= m.off && off-m.off+uint64(n) <= uint64(len(m.mem)) {
			return m.mem[off-m.off:][:n]
		}
	}
	return nil
}

// write is a processor's: to what is mapped, or trapped.
func (s *side) write(bar int, off uint64, p []byte) {
	if mem := s.direct(bar, off, len(p)); mem != nil {
		copy(mem, p)
		return
	}
	for len(p) > 0 {
		n := min(len(p), int(8-off%8))
		for n&(n-1) != 0 || off%uint64(n) != 0 {
			n--
		}
		s.WriteBAR(bar, off, p[:n])
		off, p = off+uint64(n), p[n:]
	}
}

func (s *side) read(bar int, off uint64, n int) []byte {
	p := make([]byte, n)
	if mem := s.direct(bar, off, n); mem != nil {
		copy(p, mem)
		return p
	}
	s.trapped(bar, off, p)
	return p
}

// trapped reads in single accesses, also where a mapping exists.
func (s *side) trapped(bar int, off uint64, p []byte) {
	for i := 0; i < len(p); i += 4 {
		s.ReadBAR(bar, off+uint64(i), p[i:min(i+4, len(p))])
	}
}

func (s *side) wr(reg uint64, v uint32) {
	s.WriteBAR(0, reg, binary.LittleEndian.AppendUint32(nil, v))
	for s.patient && !s.shown() {
	}
}

func (s *side) rd(reg uint64) uint32 {
	var b [4]byte
	s.ReadBAR(0, reg, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// Registers of both chips.
const (
	regFlush   = 0x070000
	pramin     = 0x700000
	praminSize = 0x100000
)

// barrier is the register write that a driver puts between accesses that depend on
// each other.
func (s *side) barrier() { s.wr(regFlush, 1) }

// peek and poke move PRAMIN over addr, and leave it there.
func (s *side) poke(addr uint64, p []byte) {
	s.wr(s.window, uint32(addr/praminSize*praminSize>>16))
	s.write(0, pramin+addr%praminSize, p)
}

func (s *side) peek(addr uint64, n int) []byte {
	s.wr(s.window, uint32(addr/praminSize*praminSize>>16))
	return s.read(0, pramin+addr%praminSize, n)
}

// sharer makes an aggregator of a card.
func sharer(t testing.TB, c *soft.Card, gpu func(card.GPU) card.GPU) *aggregator.Aggregator {
	t.Helper()
	d, err := carddriver.New(c, carddriver.Options{})
	require.NoError(t, err)
	seen := card.GPU(d)
	if gpu != nil {
		seen = gpu(d)
	}
	agg, err := aggregator.New(seen, aggregator.Options{})
	require.NoError(t, err)
	return agg
}

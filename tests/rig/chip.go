package rig

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Chip is a chip that guests have, with the least memory of one.
type Chip struct {
	Device serve.Chip
	VRAM   uint64
	attach func(ctx context.Context, socket string, cfg guest.Config) (*guest.Guest, error)
	drive  func(*guest.Guest) (Driver, error) // a GPU that is up
}

// The chips.
var (
	Fermi  = Chip{serve.GF100{}, VRAM, guest.Attach, fermiWith(push.M2MF)}
	Hopper = Chip{serve.GH100{}, 4<<30 + gsp.Reserved, guest.Plug, newHopper}
	Chips  = []Chip{Fermi, Hopper}

	// FermiCopy is a Fermi that copies lines by the engine that copies for the graphics channels of a Hopper.
	FermiCopy = Chip{serve.GF100{}, VRAM, guest.Attach, fermiWith(push.CE0)}
)

// GPU is a share with such a chip.
func (c Chip) GPU(share aggregator.GuestConfig) serve.GPUConfig {
	share.VRAM = c.VRAM
	return serve.GPUConfig{Share: share, Device: c.Device}
}

// Attach attaches a guest to a server.
func (c Chip) Attach(t testing.TB, socket string, cfg guest.Config) Driver {
	t.Helper()
	cfg.Timeout = Patience
	g, err := c.attach(t.Context(), socket, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	d, err := c.drive(g)
	require.NoError(t, err)
	return d
}

// Driver is what the suites need of a driver of any chip: an address space.
type Driver interface {
	// MapVRAM and MapRAM map new memory.
	MapVRAM(n uint64) (va uint64, err error)
	MapRAM(n uint64) (va uint64, p []byte, err error)
	// Window shows what MapVRAM mapped in BAR1, which the guest has mapped, and Detour in BAR3, for a moment.
	Window(va uint64) (p []byte, err error)
	Detour(va uint64) error
	// Open makes a channel that runs.
	Open(id int) (Channel, error)
}

// Channel is a channel of such a driver.
type Channel interface {
	Copy(dst, src, n uint64) error
	// Lines copies a line again and again.
	Lines(dst, src uint64, n, lines uint32) error
	Release(va uint64, payload uint32) error
	// Mark returns a function that waits for what was submitted before.
	Mark() (wait func() error, err error)
	// Finish waits for all. It fails if the GPU stopped the channel.
	Finish() error
	// Unbind takes the channel off the card, and Bind begins to put it there again. The next call comes
	// after wait.
	Unbind() error
	Bind() (wait func() error, err error)
	Close() error
}

// fermi is the driver of a GF100.
type fermi struct {
	g     *guest.Guest
	s     *guest.Space
	lines push.Engine
	next  uint64 // the next address that is free
	at    map[uint64]*guest.Buffer
}

func fermiWith(lines push.Engine) func(*guest.Guest) (Driver, error) {
	return func(g *guest.Guest) (Driver, error) {
		s, err := g.NewSpace()
		return &fermi{g, s, lines, 0x1000_0000, map[uint64]*guest.Buffer{}}, err
	}
}

func (f *fermi) add(b *guest.Buffer, err error, pages guest.Flags) (uint64, error) {
	if err != nil {
		return 0, err
	}
	va := f.next
	f.next += (b.Size + 1<<28 - 1) >> 28 << 28
	f.at[va] = b
	return va, f.s.Map(va, b, pages)
}

func (f *fermi) MapVRAM(n uint64) (uint64, error) {
	b, err := f.g.AllocVRAM(n)
	return f.add(b, err, guest.Big)
}

func (f *fermi) MapRAM(n uint64) (uint64, []byte, error) {
	b, err := f.g.AllocRAM(n)
	va, err := f.add(b, err, guest.Small)
	return va, b.Data, err
}

func (f *fermi) Window(va uint64) ([]byte, error) {
	at, err := f.at[va].BAR1()
	return f.g.Mapped(1, at)[:f.at[va].Size], err
}

func (f *fermi) Detour(va uint64) error {
	_, hide, err := f.at[va].BAR3()
	if err != nil {
		return err
	}
	return hide()
}

func (f *fermi) Open(id int) (Channel, error) {
	ch, err := f.g.NewChannelWith(id, f.s, guest.ChannelConfig{RingLog2: 11, Push: 256 << 10})
	return &FermiChannel{ch, f, rand.New(rand.NewPCG(f.g.VRAM(), uint64(id)))}, err
}

// FermiChannel is a channel of a GF100.
type FermiChannel struct {
	*guest.Channel
	f   *fermi
	rng *rand.Rand
}

// inst is a channel's first word in the channel table.
const inst = 0x3000

func (c *FermiChannel) Unbind() error { return c.f.g.Raw().SetReg(inst+8*uint32(c.ID), 0) }

func (c *FermiChannel) Bind() (func() error, error) {
	return c.f.g.Sync, c.f.g.Raw().Bind(c.ID, gf100.InstanceBound|1<<30|uint32(c.Instance()>>12), 0x001f0001)
}

// Copy implements Channel: by any of the engines.
func (c *FermiChannel) Copy(dst, src, n uint64) error {
	return c.Channel.Copy(guest.CopyEngines[c.rng.IntN(len(guest.CopyEngines))], dst, src, n)
}

// The others implement Channel.

func (c *FermiChannel) Lines(dst, src uint64, n, lines uint32) error {
	var b push.Buffer
	for most := uint32(8191); lines > 0; lines -= min(lines, most) {
		if c.f.lines == push.M2MF {
			most = lines // only the copy engines have a limit
		}
		b.CopyLines(c.f.lines, push.Surface{VA: dst}, push.Surface{VA: src}, n, min(lines, most))
	}
	return c.Submit(b.Words...)
}

func (c *FermiChannel) Release(va uint64, payload uint32) error {
	return c.Submit(new(push.Buffer).Semaphore(va, payload, push.SemRelease).Words...)
}

func (c *FermiChannel) Mark() (func() error, error) {
	f, err := c.Fence()
	return func() error { return c.f.g.Wait(f) }, err
}

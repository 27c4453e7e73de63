package serve

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// stained is a card that cannot clear memory while fail is set, and cannot move pages
// back to VRAM while stuck is.
type stained struct {
	*soft.Card
	fail, stuck atomic.Pointer[error]
}

var (
	errStain = errors.New("a stain")
	errStuck = errors.New("a page sticks")
)

func (c *stained) Relocate(m card.Relocation) (uint64, error) {
	if err := c.stuck.Load(); err != nil && m.To == nil {
		return 0, *err
	}
	return c.Card.Relocate(m)
}

func (c *stained) ScrubVRAM(addr, n uint64) error {
	if err := c.fail.Load(); err != nil {
		return *err
	}
	return c.Card.ScrubVRAM(addr, n)
}

// lockedBuffer is a log that several goroutines use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const (
	window    = 0x1700 // NV_PBUS_BAR0_WINDOW
	pramin    = 0x700000
	somewhere = 0x12 // << 16: an address in VRAM
	secret    = 0x5ec4e7
)

// TestMemoryThatCannotBeCleared: the card cannot clear the memory of a client that
// detached. The GPU refuses clients, another GPU takes them, and the first client
// after the card recovers finds cleared memory.
func TestMemoryThatCannotBeCleared(t *testing.T) {
	c := &stained{Card: newCard(t)}
	var log lockedBuffer
	s := share(t, c, Native, vfiouser.Options{Log: log.logger()}, aggregator.Options{})
	v := s.add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM})
	other := s.add(aggregator.GuestConfig{Name: "b", VRAM: testedVRAM})
	read := func(h *client.Client) uint32 {
		require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, somewhere))
		return read32(t, h, vfiouser.RegionBAR0, pramin)
	}

	h := dial(t, v)
	require.Zero(t, read(h))
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, pramin, secret))
	require.EqualValues(t, secret, read(h))
	c.fail.Store(&errStain)
	require.Error(t, h.Reset(), "its own reset says so")
	leave(t, v, h)
	require.ErrorContains(t, v.Virtual.Dirty(), "a stain")
	for range 3 {
		_, err := client.Dial(v.Config.Socket, nil)
		require.Error(t, err)
	}
	r := v.Report()
	require.EqualValues(t, 1, r.Clients)
	require.EqualValues(t, 3, r.Connections.Refused)
	require.Zero(t, r.Connections.Panics)
	require.EqualValues(t, 5, v.Virtual.Guest.Stats().ScrubFailures.Load()) // its reset, its leaving, three tries
	v.logEvents(s.log)
	require.Contains(t, log.String(), "could not be cleared")
	require.Contains(t, log.String(), "vfio-user client refused")

	c.fail.Store(nil)
	h = dial(t, other)
	leave(t, other, h)
	require.Error(t, v.Virtual.Dirty(), "that was another GPU's client")
	h = dial(t, v)
	require.NoError(t, v.Virtual.Dirty())
	require.Zero(t, read(h))
	leave(t, v, h)
	require.NoError(t, v.Virtual.Dirty())

	// The GPU is removed with uncleared memory: the next owner gets cleared memory or
	// none.
	h = dial(t, v)
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, somewhere))
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, pramin, secret))
	c.fail.Store(&errStain)
	err := s.remove("a", true)
	require.ErrorContains(t, err, "a stain")
	require.NoError(t, h.Close())
	_, err = s.try(aggregator.GuestConfig{Name: "next", VRAM: testedVRAM})
	require.ErrorContains(t, err, "a stain")
	c.fail.Store(nil)
	v = s.add(aggregator.GuestConfig{Name: "next", VRAM: testedVRAM})
	h = dial(t, v)
	require.Zero(t, read(h))
	leave(t, v, h)
}

// TestPagesThatDoNotReturn: the card cannot move pages of VRAM back from the memory
// that a detached client had mapped. The GPU refuses clients, since the last client
// could read their data. The first client after the card recovers has its own memory.
func TestPagesThatDoNotReturn(t *testing.T) {
	c := &stained{Card: newCard(t)}
	s := share(t, c, Native, vfiouser.Options{}, aggregator.Options{})
	guest := func(name string, vram uint64) aggregator.GuestConfig {
		return aggregator.GuestConfig{Name: name, VRAM: vram, Map: aperture.MapPRAMIN}
	}
	const most = 3 * testedVRAM
	s.add(guest("most", most))
	err := s.remove("most", false)
	require.NoError(t, err)
	v := s.add(guest("a", testedVRAM))
	come := func(v *Endpoint) (*client.Client, []byte) {
		h := dial(t, v)
		info, err := h.RegionInfo(vfiouser.RegionBAR0)
		require.NoError(t, err)
		defer info.File.Close()
		require.Len(t, info.Areas, 1)
		mem, err := info.Mmap(info.Areas[0])
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
		require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, somewhere))
		return h, mem
	}
	word := func(mem []byte) *uint32 { return (*uint32)(unsafe.Pointer(&mem[0])) }

	h, old := come(v)
	*word(old) = secret
	require.EqualValues(t, secret, read32(t, h, vfiouser.RegionBAR0, pramin))
	c.stuck.Store(&errStuck)
	leave(t, v, h)
	require.ErrorContains(t, v.Virtual.Dirty(), "a page sticks")
	for range 2 {
		_, err = client.Dial(v.Config.Socket, nil)
		require.Error(t, err)
	}
	require.ErrorContains(t, v.Virtual.OpenWindows(), "not closed")
	c.stuck.Store(nil)
	h, mem := come(v)
	require.NoError(t, v.Virtual.Dirty())
	require.Zero(t, *word(mem))
	*word(mem) = secret
	require.Zero(t, *word(old), "the client before reads it")
	*word(old) = 1
	require.EqualValues(t, secret, *word(mem), "the client before writes it")
	leave(t, v, h)
	require.NoError(t, v.Virtual.Dirty())

	// The GPU is removed in this state: nobody gets its memory.
	h, _ = come(v)
	c.stuck.Store(&errStuck)
	err = s.remove("a", true)
	require.ErrorContains(t, err, "a page sticks")
	require.ErrorContains(t, err, "out of use")
	require.NoError(t, h.Close())
	c.stuck.Store(nil)
	_, err = s.try(guest("most", most))
	require.Error(t, err)
	v = s.add(guest("next", testedVRAM))
	h, mem = come(v)
	require.Zero(t, *word(mem))
	leave(t, v, h)
}

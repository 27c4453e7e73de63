package serve

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// stained is a card that cannot clear memory while fail is set, and cannot move pages
// back to VRAM while stuck is.
type stained struct {
	*soft.Card
	mu    sync.Mutex
	fail  error
	stuck error
}

func (c *stained) Relocate(m card.Relocation) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck != nil && m.To == nil {
		return 0, c.stuck
	}
	return c.Card.Relocate(m)
}

func (c *stained) stick(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = err
}

func (c *stained) ScrubVRAM(addr, n uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	return c.Card.ScrubVRAM(addr, n)
}

func (c *stained) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
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
	for _, name := range []string{TransportNative, TransportLibrary} {
		t.Run(name, func(t *testing.T) {
			by, _, err := TransportNamed(name)
			if errors.Is(err, libvfiouser.ErrNotBuilt) {
				t.Skip("needs the C library; make test-libvfio-user tests it")
			}
			require.NoError(t, err)
			memoryThatCannotBeCleared(t, by)
		})
	}
}

func memoryThatCannotBeCleared(t *testing.T, by Make) {
	c := &stained{Card: newCard(t)}
	var log lockedBuffer
	s := share(t, c, by, vfiouser.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, aggregator.Options{})
	add := func(name string) (*Endpoint, string) {
		v := s.add(aggregator.GuestConfig{Name: name, VRAM: testedVRAM})
		return v, v.Config.Socket
	}
	v, path := add("a")
	other, otherPath := add("b")
	read := func(h *client.Client) uint32 {
		require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, somewhere))
		x, err := h.Read32(vfiouser.RegionBAR0, pramin)
		require.NoError(t, err)
		return x
	}

	dial := func(path string) (h *client.Client) { // a transport may take a moment to make its socket
		require.Eventually(t, func() (ok bool) {
			var err error
			h, err = client.Dial(path, nil)
			return err == nil
		}, patience, time.Millisecond)
		return h
	}

	h := dial(path)
	require.Zero(t, read(h))
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, pramin, secret))
	require.EqualValues(t, secret, read(h))
	c.set(errors.New("a stain"))
	require.Error(t, h.Reset(), "its own reset says so")
	leave(t, v, h)
	require.ErrorContains(t, v.Virtual.Dirty(), "a stain")
	for range 3 {
		_, err := client.Dial(path, nil)
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

	c.set(nil)
	h = dial(otherPath)
	leave(t, other, h)
	require.Error(t, v.Virtual.Dirty(), "that was another GPU's client")
	h = dial(path)
	require.NoError(t, v.Virtual.Dirty())
	require.Zero(t, read(h))
	leave(t, v, h)
	require.NoError(t, v.Virtual.Dirty())

	// The GPU is removed with uncleared memory: the next owner gets cleared memory or
	// none.
	h = dial(path)
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, somewhere))
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, pramin, secret))
	c.set(errors.New("a stain"))
	_, err := s.Remove("a", true)
	require.ErrorContains(t, err, "a stain")
	require.NoError(t, h.Close())
	_, err = s.try(aggregator.GuestConfig{Name: "next", VRAM: testedVRAM})
	require.ErrorContains(t, err, "a stain")
	c.set(nil)
	v, path = add("next")
	h = dial(path)
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
	_, err := s.Remove("most", false)
	require.NoError(t, err)
	v := s.add(guest("a", testedVRAM))
	path := v.Config.Socket
	come := func(path string) (*client.Client, []byte) {
		h, err := client.Dial(path, nil)
		require.NoError(t, err)
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

	h, old := come(path)
	*word(old) = secret
	x, err := h.Read32(vfiouser.RegionBAR0, pramin)
	require.NoError(t, err)
	require.EqualValues(t, secret, x)
	c.stick(errors.New("a page sticks"))
	leave(t, v, h)
	require.ErrorContains(t, v.Virtual.Dirty(), "a page sticks")
	for range 2 {
		_, err = client.Dial(path, nil)
		require.Error(t, err)
	}
	require.ErrorContains(t, v.Virtual.OpenWindows(), "not closed")
	c.stick(nil)
	h, mem := come(path)
	require.NoError(t, v.Virtual.Dirty())
	require.Zero(t, *word(mem))
	*word(mem) = secret
	require.Zero(t, *word(old), "the client before reads it")
	*word(old) = 1
	require.EqualValues(t, secret, *word(mem), "the client before writes it")
	leave(t, v, h)
	require.NoError(t, v.Virtual.Dirty())

	// The GPU is removed in this state: nobody gets its memory.
	h, _ = come(path)
	c.stick(errors.New("a page sticks"))
	_, err = s.Remove("a", true)
	require.ErrorContains(t, err, "a page sticks")
	require.ErrorContains(t, err, "out of use")
	require.NoError(t, h.Close())
	c.stick(nil)
	_, err = s.try(guest("most", most))
	require.Error(t, err)
	v = s.add(guest("next", testedVRAM))
	h, mem = come(v.Config.Socket)
	require.Zero(t, *word(mem))
	leave(t, v, h)
}

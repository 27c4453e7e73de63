package serve

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

const (
	patience   = time.Minute
	testedVRAM = 64 << 20 // of a virtual GPU
)

// newCard makes a card for three of them. It is closed when the test ends.
func newCard(t *testing.T) *soft.Card {
	c, err := soft.New(soft.Config{VRAM: 4 * testedVRAM})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// sharedCard is a Shared with sockets in a folder of the test.
type sharedCard struct {
	*Shared
	t   *testing.T
	dir string
}

// share shares a card until the test ends.
func share(t *testing.T, c card.Registers, by Make, opts vfiouser.Options, o aggregator.Options) *sharedCard {
	s, err := NewShared(c, by, opts, o, driver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &sharedCard{s, t, t.TempDir()}
}

func (s *sharedCard) try(share aggregator.GuestConfig) (*Endpoint, error) {
	return s.Add(GPUConfig{Share: share, Socket: filepath.Join(s.dir, share.Name)})
}

func (s *sharedCard) add(share aggregator.GuestConfig) *Endpoint {
	e, err := s.try(share)
	require.NoError(s.t, err)
	return e
}

func (s *sharedCard) remove(name string, force bool) error {
	_, err := s.Find(name).Remove(force)
	return err
}

// leave disconnects and waits until the server has noticed.
func leave(t *testing.T, e *Endpoint, h *client.Client) {
	require.NoError(t, h.Close())
	require.Eventually(t, func() bool { return !e.Device.HasClient() }, patience, time.Millisecond)
}

// dial attaches a client.
func dial(t *testing.T, e *Endpoint) *client.Client {
	h, err := client.Dial(e.Config.Socket, nil)
	require.NoError(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

func read32(t *testing.T, h *client.Client, region int, at uint64) uint32 {
	t.Helper()
	v, err := h.Read32(region, at)
	require.NoError(t, err)
	return v
}

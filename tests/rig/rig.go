// Package rig puts guests on a card in one process, for the suites below tests: the card, the
// aggregator, virtual GPUs with their servers, and drivers of guests behind the sockets. Package
// testserver has the parts below the sockets.
//
// What is made here ends with the test. Methods that a test calls on goroutines of its own return
// errors; the others fail the test.
package rig

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const (
	// Patience is how long tests and guests wait for what must happen.
	Patience = time.Minute
	// VRAM is each guest's memory, the least that a chip has.
	VRAM = 64 << 20
)

// Rig is a card that guests share.
type Rig struct {
	*testserver.Shared
	t testing.TB
}

// New makes a card, of 256 MiB if the configuration says nothing else.
func New(t testing.TB, cfg testserver.SharedConfig) *Rig {
	t.Helper()
	if cfg.Card.VRAM == 0 {
		cfg.Card.VRAM = 256 << 20
	}
	s, err := testserver.NewSharedWith(cfg)
	skipIf(t, err)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &Rig{s, t}
}

// skipIf skips the test if it needs the software card.
func skipIf(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, testserver.ErrSoft) {
		t.Skip(err)
	}
}

// NewScheduled makes a card with a scheduler.
func NewScheduled(t testing.TB, vram uint64, cfg sched.Config) *Rig {
	t.Helper()
	c := testserver.SharedConfig{Limits: aggregator.Options{Scheduler: &cfg}}
	c.Card.VRAM = vram
	return New(t, c)
}

// Add adds a virtual GPU of a share, with the usual memory if it says nothing else.
func (r *Rig) Add(share aggregator.GuestConfig) *testserver.Endpoint {
	r.t.Helper()
	return r.AddWith(serve.GPUConfig{Share: share})
}

// AddChip adds a virtual GPU of a chip, with the least memory of it.
func (r *Rig) AddChip(chip Chip, share aggregator.GuestConfig) *testserver.Endpoint {
	r.t.Helper()
	return r.AddWith(chip.GPU(share))
}

// AddWith adds a virtual GPU.
func (r *Rig) AddWith(cfg serve.GPUConfig) *testserver.Endpoint {
	r.t.Helper()
	if cfg.Share.VRAM == 0 {
		cfg.Share.VRAM = VRAM
	}
	e, err := r.Shared.Add(cfg)
	skipIf(r.t, err)
	require.NoError(r.t, err)
	return e
}

// Guest is a driver of a virtual GPU with an address space.
type Guest struct {
	*guest.Guest
	Space *guest.Space
	GPU   *aggregator.Guest
	t     testing.TB
}

// Join adds a virtual GPU and attaches a guest, which maps what the share offers.
func (r *Rig) Join(share aggregator.GuestConfig) *Guest {
	r.t.Helper()
	return r.Attach(r.Add(share), guest.Config{RAM: 1 << 20, Map: share.Map != aperture.MapNone})
}

// Attach attaches a guest to a virtual GPU.
func (r *Rig) Attach(e *testserver.Endpoint, cfg guest.Config) *Guest {
	r.t.Helper()
	g := Attach(r.t, e.Socket, cfg)
	g.GPU = e.Guest
	return g
}

// Attach attaches a guest to a server.
func Attach(t testing.TB, socket string, cfg guest.Config) *Guest {
	t.Helper()
	cfg.Timeout = Patience
	g, err := guest.Attach(context.Background(), socket, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	space, err := g.NewSpace()
	require.NoError(t, err)
	return &Guest{Guest: g, Space: space, t: t}
}

// Buffer maps n bytes of VRAM at an address, in such pages.
func (g *Guest) Buffer(va, n uint64, pages guest.Flags) *guest.Buffer {
	g.t.Helper()
	b, err := g.AllocVRAM(n)
	require.NoError(g.t, err)
	require.NoError(g.t, g.Space.Map(va, b, pages))
	return b
}

// BufferRAM maps n bytes of RAM at an address.
func (g *Guest) BufferRAM(va, n uint64) *guest.Buffer {
	g.t.Helper()
	b, err := g.AllocRAM(n)
	require.NoError(g.t, err)
	require.NoError(g.t, g.Space.Map(va, b, guest.Small))
	return b
}

// Channel makes a channel in the guest's space.
func (g *Guest) Channel(id int, cfg guest.ChannelConfig) *guest.Channel {
	g.t.Helper()
	ch, err := g.NewChannelWith(id, g.Space, cfg)
	require.NoError(g.t, err)
	return ch
}

// Entry is a guest's line of the ledger.
func (r *Rig) Entry(name string) sched.Entry {
	for _, e := range r.Agg.Ledger() {
		if e.Depth == 1 && e.Name == name {
			return e
		}
	}
	r.t.Errorf("%s is not in the ledger", name)
	return sched.Entry{}
}

// Totals sums a line of the ledger over all engines: what was had, what waits, and what the card has.
func Totals(e sched.Entry) (a sched.Account, waiting, inflight int) {
	for i := range e.Accounts {
		a.Add(&e.Accounts[i])
		waiting, inflight = waiting+e.Waiting[i], inflight+e.Inflight[i]
	}
	return a, waiting, inflight
}

package aggregator

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// failingCard panics at the next write of a register once it is armed. Its engine works, without end, for
// the channel that got the last doorbell.
type failingCard struct {
	*fakeCard
	armed  atomic.Bool
	clock  atomic.Int64
	serves atomic.Uint32
}

func (c *failingCard) OnUse(func()) {}
func (c *failingCard) Use(id uint32) (u card.Use) {
	if u.Running = uint32(id) == c.serves.Load(); u.Running {
		u.Busy[card.Graphics] = time.Duration(c.clock.Load())
	}
	return u
}

func (c *failingCard) Write32(bar int, off uint64, v uint32) {
	if bar == card.BAR0 && c.armed.CompareAndSwap(true, false) {
		panic("planted")
	}
	if bar == card.BAR1 {
		c.serves.Store(uint32(off / gf100.USERDSize))
	}
	c.fakeCard.Write32(bar, off, v)
}

// failingReceiver panics at each event of an engine.
type failingReceiver struct{ *recorder }

func (failingReceiver) EngineEvent(uint32) { panic("planted") }

// TestPanicsQuarantineTheirGuest: a panic in any goroutine that serves one guest quarantines that
// guest, and its neighbour goes on. A reset ends the quarantine.
func TestPanicsQuarantineTheirGuest(t *testing.T) {
	for where, plant := range map[string]func(*failingCard, *Guest){
		"its worker": func(c *failingCard, g *Guest) {
			c.armed.Store(true)
			bindAt(g, 2, instAt+gf100.InstanceSize)
		},
		"the delivery of its events": func(_ *failingCard, g *Guest) { g.cardChannel(1).Completed(1) },
		"an error of its channels": func(c *failingCard, g *Guest) {
			ch := g.cardChannel(1)
			c.armed.Store(true)
			ch.Fault(card.Fault{Kind: card.BadMethod})
		},
		"a step of its channel": func(_ *failingCard, g *Guest) {
			g.cardChannel(1).Fault(card.Fault{Kind: card.Broken, Text: "the server failed in a step of its channel: planted"})
		},
		"the scheduling of its channels": func(c *failingCard, g *Guest) {
			store(g, 1, 3)
			gpu(g).Channel(1, devgf100.Doorbell, 0)
			c.armed.Store(true)
			for c.armed.Load() { // until the watchdog ends the request
				c.clock.Add(int64(60 * time.Millisecond))
				g.agg.Ledger()
				time.Sleep(tick)
			}
		},
	} {
		t.Run(where, func(t *testing.T) {
			cfg := sched.Default()
			cfg.Watchdog.Limit, cfg.Watchdog.Grace = 100*time.Millisecond, time.Second
			c := &failingCard{fakeCard: fakecard.New(fakeVRAM)}
			a := newAggOn(t, c, patience, Options{Scheduler: &cfg, Clock: func() time.Duration { return time.Duration(c.clock.Load()) }})
			other, _ := addGuest(t, a, "other")
			bindChannel(t, other, 1)
			g, err := addFace(a, GuestConfig{Name: "g", VRAM: 4 << 20, Tables: 1 << 20}, failingReceiver{newRecorder()})
			require.NoError(t, err)
			bindChannel(t, g, 1)
			require.Empty(t, g.QuarantineReason())
			plant(c, g)
			require.Eventually(t, func() bool {
				return strings.HasPrefix(g.QuarantineReason(), "the server failed in "+where+": planted")
			}, patience, tick, "%s", where)
			require.Eventually(t, func() bool { return g.cardChannel(1) == nil }, patience, tick)
			require.Empty(t, other.QuarantineReason())
			bindChannel(t, other, 2)
			require.NotNil(t, other.cardChannel(2))
			require.NoError(t, gpu(g).Reset())
			require.Empty(t, g.QuarantineReason())
			bindChannel(t, g, 1)
			require.NotNil(t, g.cardChannel(1))
		})
	}
}

// TestMemoryOfLostChannelsIsNotReused: a panic while the worker closes a channel keeps that channel's
// number and its guest's memory out of use when the guest is reset or removed, for the card may still
// work for it.
func TestMemoryOfLostChannelsIsNotReused(t *testing.T) {
	const size = 40 << 20 // of two that the card has no room for
	for name, end := range map[string]func(*testing.T, *failingCard, *Guest) error{
		"unbound": func(t *testing.T, c *failingCard, g *Guest) error {
			release := hold(t, g)
			gpu(g).Channel(1, devgf100.Bind, 0)
			c.armed.Store(true)
			release()
			require.Eventually(t, func() bool { return g.QuarantineReason() != "" }, patience, tick)
			require.NoError(t, gpu(g).Reset())
			require.NotEmpty(t, g.QuarantineReason(), "the card still holds a channel")
			return g.Remove()
		},
		"removed": func(t *testing.T, c *failingCard, g *Guest) error {
			c.armed.Store(true)
			return g.Remove()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &failingCard{fakeCard: fakecard.New(fakeVRAM)}
			gpu, err := driver.New(c, driver.Options{Timeout: patience})
			require.NoError(t, err)
			defer gpu.Close()
			a, err := New(gpu, Options{})
			require.NoError(t, err)
			g, err := addFace(a, GuestConfig{Name: "g", VRAM: size, Tables: 1 << 20}, newRecorder())
			require.NoError(t, err)
			bindChannel(t, g, 1)
			require.ErrorContains(t, end(t, c, g), "1 channels and page tables are still in use by the card")
			require.False(t, c.armed.Load())
			_, err = addFace(a, GuestConfig{Name: "next", VRAM: size, Tables: 1 << 20}, newRecorder())
			require.Error(t, err)
		})
	}
}

// hold makes a guest's goroutine wait until release is called, as one that has spent its rate.
func hold(t *testing.T, g *Guest) (release func()) {
	settle(g)
	g.locked(func() { g.shadows.Charge(time.Now(), 1e15) }) // the worker waits
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shadows.Charge(time.Now(), -1e15)
		g.wake.Broadcast()
	}
}

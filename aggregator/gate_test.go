package aggregator

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// meterCard is a fake card that reports use as the test tells it. Its channels fetch
// entries immediately after their doorbells.
type meterCard struct {
	*fakeCard
	clock atomic.Int64

	mu  sync.Mutex
	use [gf100.Channels]card.Use
	put [gf100.Channels]uint32
	got [gf100.Channels]int // entries, in all
	f   func()
	bad []string
}

func (m *meterCard) Use(id uint8) card.Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.use[id]
	u.Idle = u.Ended == uint64(m.got[id])
	return u
}

func (m *meterCard) OnUse(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.f = f
}

func (m *meterCard) WriteBAR(bar int, off uint64, p []byte) {
	m.fakeCard.WriteBAR(bar, off, p)
	if bar != card.BAR1 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id, put := off/gf100.USERDSize, binary.LittleEndian.Uint32(p)
	if put >= ringSize {
		m.bad = append(m.bad, "a pointer outside the ring")
		return
	}
	m.got[id] += int((put - m.put[id]) & (ringSize - 1))
	m.put[id] = put
}

// end ends entries of a channel, each of which took d.
func (m *meterCard) end(id uint8, n int, d time.Duration) {
	m.clock.Add(int64(n) * int64(d))
	m.mu.Lock()
	m.use[id].Ended += uint64(n)
	m.use[id].Busy[gf100.EngineGR] += time.Duration(n) * d
	f := m.f
	m.mu.Unlock()
	if f != nil {
		f()
	}
}

func (m *meterCard) entries(id uint8) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.got[id]
}

const ringSize = 1 << 10 // as bindChannel makes it

func newGated(t require.TestingT, cleanup func(func()), cfg *sched.Config) (*Aggregator, *meterCard) {
	m := &meterCard{fakeCard: newFake(fakeVRAM)}
	a, err := NewWith(m, Options{Scheduler: cfg, Clock: func() time.Duration { return time.Duration(m.clock.Load()) }})
	require.NoError(t, err)
	cleanup(func() {
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a, m
}

// userPut is what the guest reads back of GP_PUT.
func userPut(g *Guest, id uint8) uint32 {
	ch := g.cardChannel(id)
	put, _ := ch.put()
	return put
}

func writePut(g *Guest, id uint8, put uint32) {
	g.eachRun(userdAt+uint64(id)*gf100.USERDSize+gf100.USERDGPPut, binary.LittleEndian.AppendUint32(nil, put), true)
	g.Doorbell(id)
}

// The card gets one entry at a time from two guests, in turns; the guests see their own
// GP_PUT.
func TestGateForwardsInTurns(t *testing.T) {
	cfg := sched.Default()
	cfg.Ahead = 0
	a, m := newGated(t, t.Cleanup, &cfg)
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, other, 1)
	ids := []uint8{g.cardChannel(1).id, other.cardChannel(1).id}
	writePut(g, 1, 5)
	writePut(other, 1, 7)
	require.Equal(t, 1, m.entries(ids[0])+m.entries(ids[1]))
	done := []int{0, 0}
	for range 12 {
		at := 0
		if m.entries(ids[1]) > done[1] {
			at = 1
		}
		done[at]++
		require.Equal(t, done[at], m.entries(ids[at]))
		require.Equal(t, uint32(5), userPut(g, 1))
		require.Equal(t, uint32(7), userPut(other, 1))
		all := done[0] + done[1]
		m.end(ids[at], 1, time.Millisecond)
		require.Eventually(t, func() bool { return m.entries(ids[0])+m.entries(ids[1]) == min(all+1, 12) }, patience, tick)
		if all <= 10 {
			require.LessOrEqual(t, max(done[0]-done[1], done[1]-done[0]), 2, "by turns")
		}
	}
	require.Equal(t, []int{5, 7}, done)
	require.Empty(t, m.bad)
	for _, e := range a.Ledger() {
		require.Zero(t, e.Waiting[0]+e.Inflight[0])
		require.Equal(t, time.Duration(e.Accounts[0].Done)*time.Millisecond, e.Accounts[0].Busy, e.Name)
	}
}

// Groups are address spaces; the first is the guest kernel's.
func TestGateGroups(t *testing.T) {
	cfg := sched.Default()
	a, _ := newGated(t, t.Cleanup, &cfg)
	g, _ := addGuest(t, a, "a")
	bindChannelAt(t, g, 1, dirAt)
	bindChannelAt(t, g, 2, dirAt+0x10000)
	bindChannelAt(t, g, 3, dirAt+0x10000)
	names := func() (out []string) {
		for _, e := range a.Ledger() {
			if e.Depth == 2 {
				out = append(out, e.Name)
			}
		}
		return out
	}
	require.Equal(t, []string{"kernel", "space-0x110000"}, names())
	g.Bind(2, 0)
	settle(g)
	require.Len(t, names(), 2)
	g.Bind(3, 0)
	settle(g)
	require.Equal(t, []string{"kernel"}, names())
	// A driver that was loaded again has another directory for itself.
	g.Bind(1, 0)
	settle(g)
	require.Empty(t, names())
	bindChannelAt(t, g, 3, dirAt+0x10000)
	bindChannelAt(t, g, 1, dirAt)
	require.Equal(t, []string{"kernel", "space-0x100000"}, names())
	require.NoError(t, g.Reset())
	require.Empty(t, names())
	bindChannelAt(t, g, 2, dirAt+0x10000)
	require.Equal(t, []string{"kernel"}, names())
}

// Channels are grouped as the guest's configuration says, and all groups weigh the same.
func TestGateGrouping(t *testing.T) {
	for grouping, want := range map[Grouping][]string{
		BySpace:   {"kernel 100", "space-0x110000 100"},
		ByChannel: {"channel-1 100", "channel-2 100", "channel-3 100"},
		ByGuest:   {"all 100"},
	} {
		t.Run(grouping.String(), func(t *testing.T) {
			cfg := sched.Default()
			a, _ := newGated(t, t.Cleanup, &cfg)
			g := addGuestWith(t, a, GuestConfig{Group: grouping})
			bindChannelAt(t, g, 1, dirAt)
			bindChannelAt(t, g, 2, dirAt+0x10000)
			bindChannelAt(t, g, 3, dirAt+0x10000)
			var got []string
			for _, e := range a.Ledger() {
				if e.Depth == 2 {
					got = append(got, fmt.Sprint(e.Name, " ", e.Weight))
				}
				if e.Depth == 3 {
					require.Regexp(t, "^channel [123]$", e.Name)
				}
			}
			require.Equal(t, want, got)
		})
	}
}

// For any writes of a guest, and any end of entries, the card's GP_PUT follows the guest's
// to the same final value, with and without a scheduler.
func TestGateFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := sched.Default()
		cfg.Policy = rapid.SampledFrom([]sched.Policy{sched.None, sched.FIFO, sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}).Draw(t, "policy")
		cfg.Depth = rapid.IntRange(1, 3).Draw(t, "depth")
		cfg.Ahead = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 20 * time.Millisecond}).Draw(t, "ahead")
		a, m := newGated(t, t.Cleanup, &cfg)
		g := addGuestWith(t, a, GuestConfig{})
		bindChannelAt(t, g, 1, dirAt)
		id := g.cardChannel(1).id
		put, sent, ended := uint32(0), 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if n := rapid.IntRange(0, 600).Draw(t, "add"); sent-ended+n < ringSize {
				put = (put + uint32(n)) & (ringSize - 1)
				sent += n
				writePut(g, 1, put)
			}
			require.LessOrEqual(t, m.entries(id), sent, "never beyond what the guest wrote")
			require.Equal(t, put, userPut(g, 1))
			if n := m.entries(id) - ended; n > 0 {
				n = rapid.IntRange(0, n).Draw(t, "end")
				ended += n
				m.end(id, n, time.Millisecond)
			}
		}
		for tries := 0; ended < sent; tries++ {
			if n := m.entries(id) - ended; n > 0 {
				ended += n
				m.end(id, n, time.Millisecond)
				tries = 0
			}
			require.Less(t, tries, 1000, "%d of %d", ended, sent)
			m.clock.Add(int64(time.Millisecond))
			a.gate.poll()
		}
		require.Equal(t, sent, m.entries(id))
		require.Empty(t, m.bad)
		require.Zero(t, g.stats.BadPut.Load())
	})
}

// A GP_PUT that goes back withdraws entries that have not had their turn; one outside the
// ring goes to the card, which reports it to the guest.
func TestGateBadPut(t *testing.T) {
	cfg := sched.Default()
	cfg.Ahead = 0
	a, m := newGated(t, t.Cleanup, &cfg)
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	id := g.cardChannel(1).id
	writePut(g, 1, 9)
	require.Equal(t, 1, m.entries(id))
	writePut(g, 1, 3)
	for range 2 {
		n := m.entries(id)
		m.end(id, 1, time.Millisecond)
		require.Eventually(t, func() bool { return m.entries(id) == n+1 }, patience, tick)
	}
	m.end(id, 1, time.Millisecond)
	require.Equal(t, uint64(1), g.stats.BadPut.Load())
	writePut(g, 1, ringSize)
	require.Len(t, m.bad, 1)
	require.Equal(t, uint64(2), g.stats.BadPut.Load())
	writePut(g, 1, 3)
	require.Equal(t, regWrite{uint32(id), 3}, m.rings()[len(m.rings())-1], "the card has forgotten its own")
	writePut(g, 1, 4)
	require.Eventually(t, func() bool { return m.entries(id) == 4 }, patience, tick)
}

// A channel that the guest stops in the middle does not block the card for others.
func TestGateStopped(t *testing.T) {
	cfg := sched.Default()
	a, m := newGated(t, t.Cleanup, &cfg)
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, other, 1)
	writePut(g, 1, 3)
	id, otherID := g.cardChannel(1).id, other.cardChannel(1).id
	require.Equal(t, 1, m.entries(id))
	writePut(other, 1, 3)
	require.Zero(t, m.entries(otherID))
	g.Enable(1, false)
	m.mu.Lock()
	m.use[id].Barred = true
	m.mu.Unlock()
	m.end(id, 0, 0)
	require.Eventually(t, func() bool { return m.entries(otherID) == 1 }, patience, tick)
	g.Bind(1, 0)
	settle(g)
	for _, e := range a.Ledger() {
		if e.Depth == 1 && e.Name == "a" {
			require.Equal(t, int64(3), e.Accounts[0].Dropped)
		}
	}
}

// Gates open and close while guests write GP_PUT and read their registers: a guest reads
// its own writes, and the card is never ahead of them.
func TestGateFlips(t *testing.T) {
	const flips = 100_000
	cfg := sched.Default()
	a, m := newGated(t, t.Cleanup, &cfg)
	var stop atomic.Bool
	var wg sync.WaitGroup
	guests := make([]*Guest, 2)
	for i, name := range []string{"a", "b"} {
		guests[i], _ = addGuest(t, a, name)
		bindChannel(t, guests[i], 1)
	}
	wg.Go(func() { // the card
		var ended [2]int
		for !stop.Load() {
			for i, g := range guests {
				id := g.cardChannel(1).id
				if n := m.entries(id) - ended[i]; n > 0 {
					ended[i] += n
					m.end(id, n, time.Microsecond)
				}
			}
		}
	})
	wg.Go(func() { // policies
		for round := 0; !stop.Load(); round++ {
			c := sched.Default()
			c.Policy = sched.None + sched.Policy(round)%5
			if err := a.SetSchedule(c); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	var players sync.WaitGroup
	for i, g := range guests {
		players.Go(func() {
			put, sent := uint32(0), 0
			id := g.cardChannel(1).id
			for sent < flips/len(guests) {
				if sent-m.entries(id) < ringSize/2 {
					put = (put + 1) & (ringSize - 1)
					sent++
					writePut(g, 1, put)
				}
				g.Refresh(1)
				g.ChannelBusy(1)
				if got := userPut(g, 1); got != put {
					t.Errorf("guest %d reads %d, wrote %d", i, got, put)
					return
				}
				if n := m.entries(id); n > sent {
					t.Errorf("guest %d: the card has %d of %d", i, n, sent)
					return
				}
			}
			for end := time.Now().Add(patience); m.entries(id) < sent; time.Sleep(tick) {
				if time.Now().After(end) {
					t.Errorf("guest %d: the card has %d of %d", i, m.entries(id), sent)
					return
				}
			}
		})
	}
	players.Wait()
	stop.Store(true)
	wg.Wait()
	require.Empty(t, m.bad)
}

// A scheduler that cannot be is refused with its field; so is a card that says nothing.
func TestGateRefusals(t *testing.T) {
	cfg := sched.Default()
	cfg.Credit.Period = 0
	_, err := NewWith(&meterCard{fakeCard: newFake(fakeVRAM)}, Options{Scheduler: &cfg})
	require.ErrorContains(t, err, "credit.period")
	cfg = sched.Default()
	_, err = NewWith(newFake(fakeVRAM), Options{Scheduler: &cfg})
	require.ErrorContains(t, err, "does not report engine time")
	a, _ := newGated(t, t.Cleanup, &cfg)
	_, err = a.AddGuest(GuestConfig{Name: "x", VRAM: 1 << 20, Share: sched.NodeConfig{Weight: -1}}, &recorder{})
	require.ErrorContains(t, err, "weight")
	g, _ := addGuest(t, a, "a")
	require.ErrorContains(t, g.SetShare(sched.NodeConfig{Cap: 1001}), "cap")
	bad := sched.Default()
	bad.Depth = 0
	require.ErrorContains(t, a.SetSchedule(bad), "depth")
	plain, _ := newAgg(t, Options{})
	require.ErrorIs(t, plain.SetSchedule(cfg), ErrNoScheduler)
	require.Nil(t, plain.Ledger())
}

// A channel that has ended gets no more turns, even with waiting entries and new
// submissions.
func TestGateEndedChannel(t *testing.T) {
	cfg := sched.Default()
	a, m := newGated(t, t.Cleanup, &cfg)
	g, ev := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	id := g.cardChannel(1).id
	writePut(g, 1, 3)
	m.set(regEngineStatus, gf100.EngineBusy|uint32(id))
	g.TriggerFault(gf100.EngineGR)
	require.Eventually(t, ev.saw(func() bool { return len(ev.faults) == 1 }), patience, tick)
	m.end(id, 1, time.Millisecond)
	writePut(g, 1, 5)
	a.gate.poll()
	require.Equal(t, 1, m.entries(id))
}

// A request over the limit ends its channel: the guest gets a fault, waiting entries are
// dropped, and the others continue.
func TestGateAborts(t *testing.T) {
	cfg := sched.Default()
	cfg.Watchdog.Limit, cfg.Watchdog.Grace = 100*time.Millisecond, 10*time.Millisecond
	a, m := newGated(t, t.Cleanup, &cfg)
	g, ev := addGuest(t, a, "a")
	other, otherEv := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, g, 2)
	bindChannel(t, other, 1)
	id, otherID := g.cardChannel(1).id, other.cardChannel(1).id
	writePut(g, 1, 3)
	writePut(other, 1, 3)
	require.Zero(t, m.entries(otherID))
	delivered := ev.saw(func() bool { return len(ev.faults) == 1 })
	require.Eventually(t, func() bool {
		if g.stats.Runaways.Load() == 0 { // time advances until then, even if the gate's goroutine is late
			m.clock.Add(int64(60 * time.Millisecond))
		}
		a.gate.requestPoll()
		return delivered()
	}, patience, 2*pollInterval)
	require.Equal(t, uint32(gf100.EngineClients[gf100.EngineGR].Fault(instAt+gf100.InstanceSize, 0, false, 0).Unit), uint32(ev.faults[1].Unit))
	require.False(t, m.enabled(g.cardChannel(1)))
	require.True(t, m.enabled(g.cardChannel(2)))
	require.Equal(t, uint64(1), g.stats.Runaways.Load())
	require.Eventually(t, func() bool { return m.entries(otherID) == 1 }, patience, tick)
	require.Empty(t, otherEv.faults)
	require.Equal(t, 1, m.entries(id))
	require.Equal(t, uint64(1), a.ScheduleCounts().Runaways)
}

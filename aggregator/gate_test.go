package aggregator

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
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

func (m *meterCard) Write32(bar int, off uint64, put uint32) {
	m.fakeCard.Write32(bar, off, put)
	if bar != card.BAR1 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := off / gf100.USERDSize
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

// newGated makes an aggregator with a scheduler on a card whose time is m.clock.
func newGated(t tester, edit ...func(*sched.Config)) (*Aggregator, *meterCard) {
	t.Helper()
	return newTimed(t, nil, edit...)
}

// newTimed is newGated with an alarm of the test's own.
func newTimed(t tester, w gate.Alarm, edit ...func(*sched.Config)) (*Aggregator, *meterCard) {
	t.Helper()
	cfg := sched.Default()
	for _, f := range edit {
		f(&cfg)
	}
	m := &meterCard{fakeCard: fakecard.New(fakeVRAM)}
	return newAggOn(t, m, patience, Options{Scheduler: &cfg, Clock: func() time.Duration { return time.Duration(m.clock.Load()) }, alarm: w}), m
}

// oneByOne is a schedule that forwards one entry at a time.
func oneByOne(c *sched.Config) { c.Ahead = 0 }

// addRunning adds a guest with channel 1, and returns the card's number of that.
func addRunning(t tester, a *Aggregator, name string) (*Guest, *recorder, uint8) {
	t.Helper()
	g, ev := addGuest(t, a, name)
	bindChannel(t, g, 1)
	return g, ev, number(g, 1)
}

// groups lists the groups of guests' channels in the ledger.
func groups(a *Aggregator) (list []sched.Entry) {
	return slices.DeleteFunc(a.Ledger(), func(e sched.Entry) bool { return e.Depth != 2 })
}

// userPut is what the guest reads back of GP_PUT.
func userPut(g *Guest, id uint8) uint32 {
	put, _ := g.mem.Peek(userdAt + uint64(id)*gf100.USERDSize + gf100.USERDGPPut)
	return put
}

func writePut(g *Guest, id uint8, put uint32) {
	g.mem.Write(shadowpt.VRAM, userdAt+uint64(id)*gf100.USERDSize+gf100.USERDGPPut, binary.LittleEndian.AppendUint32(nil, put))
	g.Doorbell(id)
}

// TestGateForwardsInTurns: the card gets one entry at a time from two guests, in turns; the guests see their own
// GP_PUT.
func TestGateForwardsInTurns(t *testing.T) {
	a, m := newGated(t, oneByOne)
	g, _, first := addRunning(t, a, "a")
	other, _, second := addRunning(t, a, "b")
	ids := []uint8{first, second}
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

// TestGateGroups: groups are address spaces; the first is the guest kernel's.
func TestGateGroups(t *testing.T) {
	a, _ := newGated(t)
	g, _, _ := addRunning(t, a, "a")
	bindChannelAt(t, g, 2, dirAt+0x10000)
	bindChannelAt(t, g, 3, dirAt+0x10000)
	names := func() (out []string) {
		for _, e := range groups(a) {
			out = append(out, e.Name)
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

// TestGateGrouping: channels are grouped as the guest's configuration says, and all groups weigh the same.
func TestGateGrouping(t *testing.T) {
	for grouping, want := range map[gate.Grouping][]string{
		gate.BySpace:   {"kernel 100", "space-0x110000 100"},
		gate.ByChannel: {"channel-1 100", "channel-2 100", "channel-3 100"},
		gate.ByGuest:   {"all 100"},
	} {
		t.Run(grouping.String(), func(t *testing.T) {
			a, _ := newGated(t)
			g := addGuestWith(t, a, GuestConfig{Group: grouping})
			bindChannelAt(t, g, 1, dirAt)
			bindChannelAt(t, g, 2, dirAt+0x10000)
			bindChannelAt(t, g, 3, dirAt+0x10000)
			var got []string
			for _, e := range groups(a) {
				got = append(got, fmt.Sprint(e.Name, " ", e.Weight))
			}
			require.Equal(t, want, got)
			for _, e := range a.Ledger() {
				require.True(t, e.Depth != 3 || regexp.MustCompile("^channel [123]$").MatchString(e.Name), e.Name)
			}
		})
	}
}

// For any writes of a guest, and any end of entries, the card's GP_PUT follows the guest's
// to the same final value, with and without a scheduler.
func TestGateFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, m := newGated(t, func(cfg *sched.Config) {
			cfg.Policy = rapid.SampledFrom([]sched.Policy{sched.None, sched.FIFO, sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}).Draw(t, "policy")
			cfg.Depth = rapid.IntRange(1, 3).Draw(t, "depth")
			cfg.Ahead = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 20 * time.Millisecond}).Draw(t, "ahead")
		})
		g, _, id := addRunning(t, a, "a")
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
			a.Ledger()
		}
		require.Equal(t, sent, m.entries(id))
		require.Empty(t, m.bad)
		require.Zero(t, g.stats.BadPut.Load())
	})
}

// A GP_PUT that goes back withdraws entries that have not had their turn; one outside the
// ring goes to the card, which reports it to the guest.
func TestGateBadPut(t *testing.T) {
	a, m := newGated(t, oneByOne)
	g, _, id := addRunning(t, a, "a")
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
	require.Equal(t, regWrite{Reg: uint32(id), V: 3}, m.Doorbells()[len(m.Doorbells())-1], "the card has forgotten its own")
	writePut(g, 1, 4)
	require.Eventually(t, func() bool { return m.entries(id) == 4 }, patience, tick)
}

// A channel that the guest stops in the middle does not block the card for others.
func TestGateStopped(t *testing.T) {
	a, m := newGated(t)
	g, _, id := addRunning(t, a, "a")
	other, _, otherID := addRunning(t, a, "b")
	writePut(g, 1, 3)
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

// TestGateRefusals: an invalid schedule is refused with its field; so is a card without a meter.
func TestGateRefusals(t *testing.T) {
	cfg := sched.Default()
	cfg.Credit.Period = 0
	_, err := newAggWith(t, &meterCard{fakeCard: fakecard.New(fakeVRAM)}, patience, Options{Scheduler: &cfg})
	require.ErrorContains(t, err, "credit.period")
	cfg = sched.Default()
	_, err = newAggWith(t, fakecard.New(fakeVRAM), patience, Options{Scheduler: &cfg})
	require.ErrorContains(t, err, "does not report engine time")
	a, _ := newGated(t)
	_, err = a.AddGuest(GuestConfig{Name: "x", VRAM: 1 << 20, Share: sched.NodeConfig{Weight: -1}}, newRecorder())
	require.ErrorContains(t, err, "weight")
	g, _ := addGuest(t, a, "a")
	require.ErrorContains(t, g.SetShare(sched.NodeConfig{Cap: 1001}), "cap")
	bad := sched.Default()
	bad.Depth = 0
	require.ErrorContains(t, a.SetSchedule(bad), "depth")
	plain, _ := newAgg(t, Options{})
	require.ErrorIs(t, plain.SetSchedule(cfg), gate.ErrNoScheduler)
	require.Nil(t, plain.Ledger())
}

// A channel that has ended gets no more turns, even with waiting entries and new
// submissions.
func TestGateEndedChannel(t *testing.T) {
	a, m := newGated(t)
	g, ev, id := addRunning(t, a, "a")
	writePut(g, 1, 3)
	m.Set(regEngineStatus, gf100.EngineBusy|uint32(id))
	g.TriggerFault(gf100.EngineGR)
	require.Eventually(t, ev.saw(func() bool { return len(ev.faults) == 1 }), patience, tick)
	m.end(id, 1, time.Millisecond)
	writePut(g, 1, 5)
	a.Ledger()
	require.Equal(t, 1, m.entries(id))
}

// A request over the limit ends its channel: the guest gets a fault, waiting entries are
// dropped, and the others continue.
func TestGateAborts(t *testing.T) {
	a, m := newGated(t, func(c *sched.Config) {
		c.Watchdog.Limit, c.Watchdog.Grace = 100*time.Millisecond, time.Second
	})
	g, ev, id := addRunning(t, a, "a")
	other, otherEv, otherID := addRunning(t, a, "b")
	bindChannel(t, g, 2)
	writePut(g, 1, 3)
	writePut(other, 1, 3)
	require.Zero(t, m.entries(otherID))
	delivered := ev.saw(func() bool { return len(ev.faults) == 1 })
	require.Eventually(t, func() bool {
		if g.stats.Runaways.Load() == 0 { // time advances until then, even if the gate's goroutine is late
			m.clock.Add(int64(60 * time.Millisecond))
		}
		a.Ledger()
		return delivered()
	}, patience, tick)
	require.Equal(t, uint32(gf100.EngineClients[gf100.EngineGR].Fault(instAt+gf100.InstanceSize, 0, false, 0).Unit), uint32(ev.faults[1].Unit))
	require.False(t, m.Enabled(id))
	require.True(t, m.Enabled(number(g, 2)))
	require.Equal(t, uint64(1), g.stats.Runaways.Load())
	require.Eventually(t, func() bool { return m.entries(otherID) == 1 }, patience, tick)
	require.Empty(t, otherEv.faults)
	require.Equal(t, 1, m.entries(id))
	require.Equal(t, uint64(1), a.ScheduleCounts().Runaways)
}

// park shows the gate a channel that waits for a semaphore, or no longer does.
func (m *meterCard) park(id uint8, on bool) {
	m.mu.Lock()
	m.use[id].Barred = on
	f := m.f
	m.mu.Unlock()
	f()
}

// run lets an engine work for a channel whose request does not end.
func (m *meterCard) run(id uint8, d time.Duration, running bool) {
	m.clock.Add(int64(d))
	m.mu.Lock()
	m.use[id].Busy[gf100.EngineGR] += d
	m.use[id].Running = running
	f := m.f
	m.mu.Unlock()
	f()
}

// busy is what a guest was charged for.
func busy(a *Aggregator, name string) (d time.Duration) {
	for _, e := range a.Ledger() {
		if e.Depth == 1 && e.Name == name {
			d = e.Accounts[gf100.EngineGR].Busy
		}
	}
	return d
}

// TestGatePausesReleased: a channel whose semaphore is released while another guest has its turn is
// disabled until its own turn, whatever its guest does meanwhile.
func TestGatePausesReleased(t *testing.T) {
	a, m := newGated(t, oneByOne)
	g, _, id := addRunning(t, a, "a")
	other, _, otherID := addRunning(t, a, "b")
	writePut(g, 1, 1)
	require.Equal(t, 1, m.entries(id))
	m.park(id, true)
	a.Ledger()
	writePut(other, 1, 1)
	require.Equal(t, 1, m.entries(otherID), "one that waits for a semaphore does not stop others")
	m.park(id, false)
	require.Eventually(t, func() bool { return !m.Enabled(id) }, patience, tick)
	g.Enable(1, false)
	g.Enable(1, true)
	require.False(t, m.Enabled(id), "its guest cannot resume it")
	m.end(otherID, 1, time.Millisecond)
	require.Eventually(t, func() bool { return m.Enabled(id) }, patience, tick)
	m.end(id, 1, time.Millisecond)
	require.Equal(t, time.Millisecond, busy(a, "a"))
}

// TestGatePausesLongRequest: a request that has had an engine for a slice leaves it when another guest
// waits, and goes on at its next turn. The other waits until it has left.
func TestGatePausesLongRequest(t *testing.T) {
	a, m := newGated(t, oneByOne)
	g, _, id := addRunning(t, a, "a")
	other, _, otherID := addRunning(t, a, "b")
	writePut(g, 1, 1)
	writePut(other, 1, 9)
	slice := sched.Default().Slice
	m.run(id, slice/2, true)
	a.Ledger()
	require.True(t, m.Enabled(id))
	m.run(id, slice/2, true)
	require.Eventually(t, func() bool { return !m.Enabled(id) }, patience, tick)
	m.run(id, time.Millisecond, true)
	a.Ledger()
	require.Zero(t, m.entries(otherID), "the card has not interrupted the request")
	m.run(id, 0, false)
	require.Eventually(t, func() bool { return m.entries(otherID) == 1 }, patience, tick)
	for n := 1; !m.Enabled(id); n++ {
		require.Less(t, n, 9, "it does not go on")
		m.end(otherID, 1, slice/2)
		require.Eventually(t, func() bool { return m.Enabled(id) || m.entries(otherID) > n }, patience, tick)
	}
	require.Equal(t, slice+time.Millisecond, busy(a, "a"))
}

// TestGateChargesLate: engine time that the card reports when a channel's entries have ended is charged.
func TestGateChargesLate(t *testing.T) {
	a, m := newGated(t, oneByOne)
	g, _, id := addRunning(t, a, "a")
	writePut(g, 1, 1)
	m.end(id, 1, time.Millisecond)
	a.Ledger()
	m.run(id, time.Millisecond, false)
	require.Equal(t, 2*time.Millisecond, busy(a, "a"))
	require.Zero(t, a.ScheduleCounts().BadTimes+a.ScheduleCounts().BadEvents)
}

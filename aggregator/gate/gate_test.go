package gate

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = time.Minute // for what comes at all
	tick     = 100 * time.Microsecond
	ringLog2 = 5 // so short that it wraps often
	ringSize = 1 << ringLog2
)

// meter is a card in virtual time, on which tests end the work. Its channels fetch entries as soon as
// they get a doorbell, and leave their engine as soon as they are disabled. It is the gate's alarm, too.
type meter struct {
	mu    sync.Mutex
	clock time.Duration
	chans [gf100.Channels]*channel
	onUse func()

	alarm  chan time.Time
	due    time.Duration // of the alarm
	rounds int           // of the gate's goroutine
}

func (m *meter) C() <-chan time.Time { return m.alarm }
func (m *meter) Stop()               {}
func (m *meter) Reset(d time.Duration) {
	m.do(func() { m.due, m.rounds = m.clock+d, m.rounds+1 })
}

// do changes the card, and fires the alarm if it is due.
func (m *meter) do(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f(); m.clock >= m.due {
		select {
		case m.alarm <- time.Time{}:
			m.due = math.MaxInt64
		default:
		}
	}
}

func (m *meter) now() (t time.Duration) {
	m.do(func() { t = m.clock })
	return t
}

// pass has time pass, which the channels of busy use while they may run. None passes while an alarm that
// fired has no answer.
func (m *meter) pass(t tester, d time.Duration, busy ...*channel) {
	t.Helper()
	for end := m.now() + d; m.now() < end; {
		rounds, fires := 0, false
		m.do(func() {
			if rounds = m.rounds; m.due == math.MaxInt64 {
				fires = true
				return
			}
			fires = m.due <= end
			step := max(0, min(m.due, end)-m.clock)
			m.clock += step
			for _, c := range busy {
				if c.enabled {
					c.use.Busy[card.Graphics] += step
				}
			}
		})
		if fires {
			m.await(t, rounds+1)
		}
	}
}

// await waits for a number of rounds.
func (m *meter) await(t tester, rounds int) {
	t.Helper()
	for end := time.Now().Add(patience); m.read(func() any { return m.rounds < rounds }).(bool); runtime.Gosched() {
		require.True(t, time.Now().Before(end), "no round")
	}
}

// settle waits until the gate has acted on all that happened.
func (m *meter) settle(t tester, gate *Gate) {
	t.Helper()
	for range 2 { // the first round may have begun before
		rounds := m.turns()
		gate.wakeUp()
		m.await(t, rounds+1)
	}
}

// turns is how many rounds there were.
func (m *meter) turns() int { return m.read(func() any { return m.rounds }).(int) }

func (m *meter) read(f func() any) (v any) { m.do(func() { v = f() }); return v }

func (m *meter) OnUse(f func()) { m.do(func() { m.onUse = f }) }

func (m *meter) Use(id uint32) (u card.Use) {
	m.do(func() {
		c := m.chans[id]
		u = c.use
		u.Idle, u.Running = u.Ended == uint64(c.got), u.Running && c.enabled
	})
	return u
}

// guest is a guest of the gate.
type guest struct {
	name        string
	badPuts     int
	quarantined string
}

func (g *guest) Name() string             { return g.name }
func (g *guest) CountBadPut()             { g.badPuts++ }
func (g *guest) Trace() *trace.Recorder   { return nil }
func (g *guest) Quarantine(reason string) { g.quarantined = reason }

// channel is a channel of a guest, and that of the card which executes it.
type channel struct {
	card.Channel
	gate  *Gate
	meter *meter
	guest *guest
	id    uint32
	dir   uint64

	// Guarded by the meter's lock.
	enabled bool
	put     uint32
	got     int // entries that the card has had
	use     card.Use
	refused []uint32 // GP_PUT outside the ring

	all     int // entries that the guest submitted
	endless bool
}

func (c *channel) ID() uint32                       { return c.id }
func (c *channel) Card() card.Channel               { return c }
func (c *channel) Guest() Guest                     { return c.guest }
func (c *channel) Number() uint32                   { return c.id }
func (c *channel) Space() (uint64, shadowpt.Target) { return c.dir, shadowpt.VRAM }
func (c *channel) Enable()                          { c.meter.do(func() { c.enabled = true }) }
func (c *channel) Disable()                         { c.meter.do(func() { c.enabled = false }) }
func (c *channel) read(f func() any) any            { return c.meter.read(f) }
func (c *channel) entries() int                     { return c.read(func() any { return c.got }).(int) }
func (c *channel) on() bool                         { return c.read(func() any { return c.enabled }).(bool) }
func (c *channel) working() bool {
	return c.read(func() any { return c.enabled && c.use.Ended < uint64(c.got) }).(bool)
}
func (c *channel) ended() int            { return c.read(func() any { return int(c.use.Ended) }).(int) }
func (c *channel) has(n int) func() bool { return func() bool { return c.entries() == n } }
func (c *channel) Doorbell(put uint32) {
	c.meter.do(func() {
		if put >= ringSize {
			c.refused = append(c.refused, put)
			return
		}
		c.got += int((put - c.put) & (ringSize - 1))
		c.put = put
	})
}

// Abort ends the channel as its guest does it.
func (c *channel) Abort(card.Engine) {
	c.gate.Disable(c)
	c.gate.GiveUp(c)
	c.gate.Aborted(c)
}

// submit submits n entries more.
func (c *channel) submit(n int) {
	c.all += n
	c.gate.Submit(c, uint32(c.all)&(ringSize-1))
}

// end ends n entries, each of which took d.
func (c *channel) end(n int, d time.Duration) {
	c.change(func() {
		c.meter.clock += time.Duration(n) * d
		c.use.Ended += uint64(n)
		c.use.Busy[card.Graphics] += time.Duration(n) * d
	})
}

// run has an engine work for a request that does not end.
func (c *channel) run(d time.Duration, running bool) {
	c.change(func() {
		c.meter.clock += d
		c.use.Busy[card.Graphics] += d
		c.use.Running = running
	})
}

// park has a channel wait for a semaphore, or no longer.
func (c *channel) park(on bool) { c.change(func() { c.use.Barred = on }) }

// change changes what the card says of a channel.
func (c *channel) change(f func()) {
	c.meter.do(f)
	c.meter.onUse()
}

type tester interface {
	require.TestingT
	Helper()
	Cleanup(func())
}

// newGate makes a gate that forwards one entry at a time, if edit does not change that.
func newGate(t tester, m *meter, edit func(*sched.Config)) *Gate {
	t.Helper()
	cfg := sched.Default()
	cfg.Ahead = 0
	if edit != nil {
		edit(&cfg)
	}
	m.alarm, m.due = make(chan time.Time, 1), math.MaxInt64
	g, err := New(m, 3, cfg, m.now, m)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// add adds a channel that is enabled.
func (t *Gate) add(m *meter, g *guest, id uint32, dir uint64) *channel {
	c := &channel{gate: t, meter: m, guest: g, id: id, dir: dir}
	m.do(func() { m.chans[id] = c })
	if err := t.Add(c, card.Ring{Log2: ringLog2}, 0); err != nil {
		panic(err)
	}
	t.Enable(c)
	return c
}

// pair is two guests with a channel each.
func pair(t *testing.T, edit func(*sched.Config)) (*Gate, *meter, *channel, *channel) {
	t.Helper()
	m := new(meter)
	gate := newGate(t, m, edit)
	var c [2]*channel
	for i := range c {
		g := &guest{name: fmt.Sprint("guest", i)}
		require.NoError(t, gate.AddGuest(g, sched.NodeConfig{}, BySpace))
		c[i] = gate.add(m, g, uint32(i), 1)
	}
	return gate, m, c[0], c[1]
}

// TestGateForwardsInTurns: the card gets one entry at a time from two guests, in turns, and what each
// ran is charged to it.
func TestGateForwardsInTurns(t *testing.T) {
	gate, _, a, b := pair(t, nil)
	a.submit(5)
	b.submit(7)
	for all := 1; all <= 12; all++ {
		require.Eventually(t, func() bool { return a.working() || b.working() }, patience, tick)
		c := a
		if !a.working() {
			c = b
		}
		require.Equal(t, c.ended()+1, c.entries(), "one at a time")
		c.end(1, time.Millisecond)
		if all <= 10 {
			require.InDelta(t, a.ended(), b.ended(), 2, "by turns")
		}
	}
	require.Equal(t, []int{5, 7}, []int{a.entries(), b.entries()})
	require.Equal(t, 5*time.Millisecond, gate.busy("guest0"))
	a.run(time.Millisecond, false)
	require.Equal(t, 6*time.Millisecond, gate.busy("guest0"), "reported after the end of its entries")
	require.Zero(t, gate.Counts().BadTimes+gate.Counts().BadEvents)
}

// TestAllThatEndsIsExecuted: whatever guests submit, endless requests too, all requests that end do so,
// once, on channels without an endless one. The card never gets more than the guest submitted.
func TestAllThatEndsIsExecuted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, allThatEndsIsExecuted) })
}

func allThatEndsIsExecuted(rt *rapid.T) {
	m := new(meter)
	limit := time.Duration(0)
	gate := newGate(rt, m, func(cfg *sched.Config) {
		cfg.Policy = rapid.SampledFrom([]sched.Policy{sched.None, sched.FIFO, sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}).Draw(rt, "policy")
		cfg.Depth = rapid.IntRange(1, 3).Draw(rt, "depth")
		cfg.Ahead = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 20 * time.Millisecond}).Draw(rt, "ahead")
		cfg.Watchdog.Grace, cfg.Watchdog.Offences = time.Millisecond, 0
		limit = cfg.Watchdog.Limit
	})
	by := rapid.SampledFrom([]Grouping{BySpace, ByChannel, ByGuest}).Draw(rt, "group")
	guests := []*guest{{name: "a"}, {name: "b"}}
	for _, g := range guests {
		require.NoError(rt, gate.AddGuest(g, sched.NodeConfig{}, by))
	}
	channels := make([]*channel, 5) // of the first, three
	start := func(i int) {
		if c := channels[i]; c != nil {
			gate.Disable(c)
			gate.Remove(c)
		}
		channels[i] = gate.add(m, guests[i/3], uint32(i), uint64(i/2))
	}
	for i := range channels {
		start(i)
	}
	// work lets the card work for each channel that may run, and reports whether all has ended that ends. Time
	// passes only while the gate sleeps: else a request could reach its limit before the card has it.
	work := func() bool {
		done, idle := true, true
		for _, c := range channels {
			synctest.Wait()
			works := c.working()
			idle = idle && !works
			switch {
			case !works:
			case c.endless:
				c.run(limit/2, true)
			default:
				c.end((c.entries()-c.ended()+1)/2, time.Millisecond)
			}
			require.LessOrEqual(rt, c.entries(), c.all, "never beyond what the guest wrote")
			done = done && (c.endless || c.ended() == c.all)
		}
		if idle && !done {
			rest := m.due - m.clock
			require.LessOrEqual(rt, rest, 10*time.Millisecond, "the card rests for long while entries wait")
			m.do(func() { m.clock += rest })
		}
		return done
	}
	for range rapid.IntRange(1, 6).Draw(rt, "steps") {
		i := rapid.IntRange(0, len(channels)-1).Draw(rt, "channel")
		if rapid.IntRange(0, 4).Draw(rt, "act") < 2 {
			start(i)
		} else {
			channels[i].endless = true
		}
		for _, c := range channels {
			most := 20
			if c.endless {
				most = 3
			} else if rapid.IntRange(0, 9).Draw(rt, "many") == 0 {
				most = ringSize - 1
			}
			c.submit(rapid.IntRange(0, most).Draw(rt, "entries"))
		}
		for n := 0; !work(); n++ {
			require.Less(rt, n, 1000, "some never end")
		}
	}
	for _, g := range guests {
		require.Empty(rt, g.quarantined)
		require.Zero(rt, g.badPuts)
	}
	for _, c := range channels {
		require.Zero(rt, len(c.refused))
		gate.Remove(c)
	}
}

// TestBadPut: a GP_PUT that goes back withdraws entries that have not had their turn; one outside the
// ring goes to the card, which reports it to the guest.
func TestBadPut(t *testing.T) {
	gate, _, c, _ := pair(t, nil)
	gate.Submit(c, 9)
	gate.Submit(c, 3)
	for n := 1; n <= 3; n++ {
		require.Eventually(t, c.has(n), patience, tick)
		c.end(1, time.Millisecond)
	}
	gate.Ledger()
	require.Equal(t, []int{1, 3}, []int{c.guest.badPuts, c.entries()})
	gate.Submit(c, ringSize)
	require.Equal(t, []uint32{ringSize}, c.refused)
	require.Equal(t, 2, c.guest.badPuts)
	c.meter.do(func() { c.put = 0 })
	gate.Submit(c, 3)
	require.EqualValues(t, 3, c.put, "the card has forgotten its own")
	gate.Submit(c, 4)
	require.Eventually(t, c.has(7), patience, tick)
}

// TestPauses: a channel whose semaphore is released while another guest has its turn is disabled until
// its own turn, whatever its guest does.
func TestPauses(t *testing.T) {
	gate, _, a, b := pair(t, nil)
	a.submit(1)
	a.park(true)
	gate.Ledger()
	b.submit(1)
	require.Equal(t, 1, b.entries(), "one that waits for a semaphore does not stop others")
	a.park(false)
	require.Eventually(t, func() bool { return !a.on() }, patience, tick)
	require.True(t, gate.Waiting(a))
	gate.Disable(a)
	gate.Enable(a)
	require.False(t, a.on(), "its guest cannot resume it")
	b.end(1, time.Millisecond)
	require.Eventually(t, a.on, patience, tick)
	a.end(1, time.Millisecond)
	gate.Ledger()
	require.False(t, gate.Waiting(a))
}

// TestStopped: a channel that its guest stops in the middle does not keep the card from others, and what
// it had is dropped when it is unbound. Nor does one that stopped while it had no work, and one that may
// go on since then does.
func TestStopped(t *testing.T) {
	gate, m, a, b := pair(t, nil)
	m.do(func() { a.use.Barred, b.use.Barred = true, true })
	gate.Enable(b)
	m.settle(t, gate)
	m.do(func() { b.use.Barred = false })
	b.submit(1)
	require.Eventually(t, b.has(1), patience, tick)
	b.end(1, time.Millisecond)
	a.submit(1)
	b.submit(1)
	require.Eventually(t, b.has(2), patience, tick)
	a.park(false)
	b.end(1, time.Millisecond)
	require.Eventually(t, a.on, patience, tick)
	a.submit(2)
	b.submit(3)
	m.settle(t, gate)
	require.Equal(t, 2, b.entries())
	gate.Disable(a)
	a.park(true)
	require.Eventually(t, b.has(3), patience, tick)
	gate.Remove(a)
	require.EqualValues(t, 3, gate.account("guest0").Dropped)
}

func (t *Gate) busy(name string) time.Duration { return t.account(name).Busy }

// account is what a guest had in all, of the first engine.
func (t *Gate) account(name string) (a sched.Account) {
	for _, e := range t.Ledger() {
		if e.Depth == 1 && e.Name == name {
			a = e.Accounts[0]
		}
	}
	return a
}

// TestKeptForAMoment: if a doorbell leads to a turn only at a later time, the alarm is set to that time,
// also during a longer sleep of the goroutine: here band keeps the card for the guest that used less.
func TestKeptForAMoment(t *testing.T) {
	gate, m, a, b := pair(t, func(c *sched.Config) { c.Policy = sched.Band })
	for c, d := range map[*channel]time.Duration{a: 40 * time.Millisecond, b: 100 * time.Microsecond} {
		c.submit(1)
		c.end(1, d)
		m.settle(t, gate)
	}
	b.submit(1)
	b.end(1, 100*time.Microsecond) // it had the last turn
	m.settle(t, gate)
	require.Greater(t, m.read(func() any { return m.due - m.clock }).(time.Duration), time.Minute)
	a.submit(1)
	require.Equal(t, 1, a.entries())
	soon := func() any { return m.due <= m.clock+sched.Default().Band.Grace }
	require.Eventually(t, func() bool { return m.read(soon).(bool) }, patience, tick)
	m.pass(t, sched.Default().Band.Grace)
	require.Equal(t, 2, a.entries())
}

// TestWakeUps: neither a channel that waits for a semaphore nor one without work wakes the gate's
// goroutine, nor a program that runs for long beside them.
func TestWakeUps(t *testing.T) {
	gate, m, waits, runs := pair(t, nil)
	waits.submit(1)
	waits.park(true)
	m.settle(t, gate)
	before := m.turns()
	m.pass(t, 10*time.Second)
	require.LessOrEqual(t, m.turns()-before, 2) // one may have been under way
	runs.submit(1)
	runs.run(0, true)
	m.settle(t, gate)
	before = m.turns()
	m.pass(t, 10*time.Second, runs)
	require.LessOrEqual(t, m.turns()-before, 2) // one may have been under way
	require.Equal(t, 10*time.Second, gate.busy("guest1"))
}

// TestLate: one whose work comes, or whose semaphore is released, after another has run alone for long
// has half of the card from then on, and no more.
func TestLate(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band, sched.DFQ} {
		for _, how := range []string{"submitted", "released", "released, seen by a ledger"} {
			t.Run(fmt.Sprint(p, " ", how), func(t *testing.T) {
				gate, m, late, early := pair(t, func(c *sched.Config) { c.Policy = p })
				if how != "submitted" {
					late.submit(ringSize - 1)
					late.park(true)
				}
				early.submit(1)
				early.run(0, true)
				m.settle(t, gate)
				m.pass(t, 10*time.Second, early)
				switch how {
				case "submitted":
					late.submit(ringSize - 1)
				case "released":
					late.park(false)
				default:
					m.do(func() { late.use.Barred = false })
					gate.Ledger()
				}
				m.settle(t, gate)
				for range 400 {
					if !late.working() { // only the alarm wakes the gate
						m.pass(t, time.Millisecond, early)
						continue
					}
					if late.end(1, time.Millisecond); late.ended()+2 > late.all {
						late.submit(ringSize / 2)
					}
					m.settle(t, gate)
				}
				require.InDelta(t, 200, (gate.busy("guest1")-10*time.Second)/time.Millisecond, 40)
			})
		}
	}
}

// TestCap: a guest that runs alone has no more of an engine than its cap.
func TestCap(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Timeslice, sched.DFQ} {
		gate, m, c, _ := pair(t, func(cfg *sched.Config) { cfg.Policy = p })
		require.NoError(t, gate.SetShare(c.guest, sched.NodeConfig{Cap: 250}))
		c.submit(1)
		c.run(0, true)
		m.settle(t, gate)
		m.pass(t, time.Second, c)
		require.InDelta(t, 250, gate.busy("guest0")/time.Millisecond, 30, p)
	}
}

// TestGroups: the channels of a guest are grouped as it is configured; the first address space is its
// kernel's, until its driver has left. The debt of a group that ends is its guest's.
func TestGroups(t *testing.T) {
	m := new(meter)
	gate := newGate(t, m, nil)
	names := func() (list []string) {
		for _, e := range gate.Ledger() {
			if e.Depth == 2 {
				list = append(list, fmt.Sprint(e.Name, " ", e.Weight))
			}
		}
		return list
	}
	for by, want := range map[Grouping][]string{
		BySpace:   {"kernel 100", "space-0x2000 100"},
		ByChannel: {"channel-0 100", "channel-1 100", "channel-2 100"},
		ByGuest:   {"all 100"},
	} {
		g := &guest{name: by.String()}
		require.NoError(t, gate.AddGuest(g, sched.NodeConfig{}, by))
		var c []*channel
		for i, dir := range []uint64{0x1000, 0x2000, 0x2000} {
			c = append(c, gate.add(m, g, uint32(i), dir))
		}
		require.Equal(t, want, names())
		if by == BySpace {
			c[1].submit(1)
			c[1].end(1, 20*time.Millisecond)
			gate.Remove(c[1])
			gate.Remove(c[0])
			require.Equal(t, want[1:], names())
			gate.Remove(c[2])
			require.Equal(t, 20*time.Millisecond, gate.busy(g.name), "its past use")
			c = []*channel{gate.add(m, g, 0, 0x2000), gate.add(m, g, 1, 0x1000)}
			require.Equal(t, []string{"kernel 100", "space-0x1000 100"}, names())
			gate.Forgive(g)
		}
		for _, c := range c {
			gate.Remove(c)
		}
		require.Empty(t, names())
		gate.RemoveGuest(g)
		require.ErrorIs(t, gate.SetShare(g, sched.NodeConfig{Weight: 300}), ErrRemoved)
	}
}

// TestRefusals: an invalid schedule is refused with its field; so is a card without a meter.
func TestRefusals(t *testing.T) {
	cfg := sched.Default()
	_, err := New(nil, 3, cfg, nil, nil)
	require.ErrorContains(t, err, "does not report engine time")
	cfg.Credit.Period = 0
	m := new(meter)
	_, err = New(m, 3, cfg, m.now, nil)
	require.ErrorContains(t, err, "credit.period")
	gate, _, a, _ := pair(t, nil)
	cfg = sched.Default()
	cfg.Depth = 0
	require.ErrorContains(t, gate.SetSchedule(cfg), "depth")
	require.ErrorContains(t, gate.SetShare(a.guest, sched.NodeConfig{Cap: 1001}), "cap")
	require.ErrorContains(t, gate.AddGuest(new(guest), sched.NodeConfig{Weight: -1}, BySpace), "weight")
	var none *Gate
	require.True(t, errors.Is(none.SetSchedule(sched.Default()), ErrNoScheduler) && none.Ledger() == nil)
}

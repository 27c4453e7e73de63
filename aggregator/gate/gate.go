// Package gate holds submissions back until the scheduler (package sched) selects them. It
// forwards a guest's GP_PUT as far as the scheduler allows. The entries after that stay in the
// guest's ring, and the guest's own USERD shows the GP_PUT that the guest wrote.
//
// One goroutine per Gate, from New to Close. The card wakes it when something ended that the gate
// forwarded, and an alarm at the scheduler's timer. It charges the engine time that the card reports
// (card.Meter). Between these events a request that runs is charged only when another channel
// submits or a ledger is made.
//
// The gate also decides which of the channels with work on the card may run: those that the
// scheduler pauses are disabled until their turn. So a channel is enabled on the card if its guest
// enabled it (Enable) and it is not paused.
//
// Gate.mu guards everything. It is taken after the locks of a guest: Channel and Guest are
// called without it, except for Number, Space, Guest, Name, Trace, CountBadPut and the card's channel,
// which take no lock of a guest.
package gate

import (
	"fmt"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Gate shares the engine time of one card. A nil Gate forwards every submission immediately.
type Gate struct {
	card    card.Meter
	engines int
	now     func() time.Duration
	alarm   Alarm

	wake    chan struct{} // of capacity 1: something happened
	closing chan struct{}
	working sync.WaitGroup

	mu      sync.Mutex
	s       *sched.Scheduler
	chans   []*gated // by the card's number; nil where there is none
	nodes   map[sched.ID]*gated
	guests  map[Guest]*ShareState
	owners  map[sched.ID]Guest
	due     time.Duration // when the alarm wakes the goroutine; zero while it is awake
	metered time.Duration // when all that runs was charged last
	// at is the time of all that is done with mu held: a decision as of a later one would not know what
	// running channels used until then.
	at time.Duration
}

// gated is a channel with its gate.
type gated struct {
	ch Channel
	ChannelState
}

// Alarm wakes the gate's goroutine after a time. It is the goroutine's alone.
type Alarm interface {
	C() <-chan time.Time
	Reset(time.Duration)
	Stop()
}

// timer is the machine's alarm.
type timer struct{ *time.Timer }

func (t timer) C() <-chan time.Time   { return t.Timer.C }
func (t timer) Reset(d time.Duration) { t.Timer.Reset(d) }
func (t timer) Stop()                 { t.Timer.Stop() }

// mostUncharged bounds the time that a running channel was not charged for when another gets work: the
// scheduler gives that other one the credit that there is at this moment.
const mostUncharged = 2 * time.Millisecond

// Guest is a guest that shares the card. It is a key of a map.
type Guest interface {
	Name() string
	// Trace returns the recorder of its events, nil if nobody records.
	Trace() *trace.Recorder
	// CountBadPut counts a GP_PUT that cannot be.
	CountBadPut()
	// Quarantine stops all of the guest's channels.
	Quarantine(reason string)
}

// Channel is a channel of a guest.
type Channel interface {
	Card() card.Channel
	Guest() Guest
	Number() uint32 // as its guest counts
	// Space names its address space: the directory in the guest's memory.
	Space() (dir uint64, target shadowpt.Target)
	// Abort ends the channel: its request does not end on an engine. It calls Aborted.
	Abort(card.Engine)
}

// New makes a gate in front of a card that reports the time of so many engines by channel. w wakes it; nil is a
// timer.
func New(m card.Meter, engines int, cfg sched.Config, now func() time.Duration, w Alarm) (*Gate, error) {
	if w == nil {
		w = timer{time.NewTimer(time.Hour)}
	}
	if m == nil {
		return nil, fmt.Errorf("aggregator: this card does not report engine time by channel, so use no scheduler")
	}
	s, err := sched.New(cfg, engines, now())
	if err != nil {
		return nil, fmt.Errorf("aggregator: scheduler: %w", err)
	}
	t := &Gate{
		card: m, engines: engines, now: now, alarm: w, s: s, wake: make(chan struct{}, 1), closing: make(chan struct{}),
		nodes: make(map[sched.ID]*gated), guests: make(map[Guest]*ShareState), owners: make(map[sched.ID]Guest),
	}
	m.OnUse(t.wakeUp)
	t.working.Add(1)
	go t.run()
	t.wakeUp() // due is zero
	return t, nil
}

// Close ends the gate. All guests must have been removed.
func (t *Gate) Close() {
	if t == nil {
		return
	}
	t.card.OnUse(nil)
	close(t.closing)
	t.working.Wait()
}

// lock begins what is done as of one time, that of the last look at the card.
func (t *Gate) lock() {
	t.mu.Lock()
	t.at = t.now()
}

// wakeUp wakes the goroutine. It never blocks.
func (t *Gate) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Gate) run() {
	defer t.working.Done()
	defer t.alarm.Stop()
	for {
		select {
		case <-t.closing:
			return
		case <-t.wake:
		case <-t.alarm.C():
		}
		next := t.round()
		t.doAlert()
		t.alarm.Reset(next)
	}
}

// round charges what the card did and forwards the next. It returns the time until the alarm.
func (t *Gate) round() time.Duration {
	t.lock()
	defer t.mu.Unlock()
	t.due = 0
	t.charge()
	for _, c := range t.chans {
		if c != nil && c.unsettled() {
			t.settle(c)
		}
	}
	t.step()
	next := max(0, min(t.s.Timer()-t.at, time.Hour))
	t.due = t.at + next
	return next
}

// step forwards the submissions that the scheduler selects. t.mu is held.
func (t *Gate) step() {
	for {
		f, ok := t.s.Next(t.at)
		if !ok {
			break
		}
		switch c := t.nodes[f.Channel]; {
		case c == nil:
		case f.Pause:
			t.pause(c)
		default:
			t.forward(c, f.Entries)
		}
	}
	if at := t.s.Timer(); len(t.s.Alerts) > 0 || at < t.due {
		t.due = at
		t.wakeUp()
	}
}

// forward lets the card have n entries more, and the channel run.
func (t *Gate) forward(c *gated, n int) {
	c.note(trace.Forward, 0, uint64(n))
	c.Inflight += n
	if c.Paused {
		c.Paused = false
		t.apply(c)
	}
	if n == 0 {
		return
	}
	c.Sent = (c.Sent + uint32(n)) & (c.Size - 1)
	c.ch.Card().Doorbell(c.Sent)
}

// pause lets a channel leave its engine. A card that cannot interrupt a request ends it before.
func (t *Gate) pause(c *gated) {
	c.note(trace.Pause, 0, 0)
	c.Paused = true
	t.apply(c)
	t.look(c)
}

// note notes an event of a channel if its guest is recorded.
func (c *gated) note(k trace.Kind, unit int, value uint64) {
	if r := c.ch.Guest().Trace(); r != nil {
		r.Note(trace.Event{Kind: k, Channel: uint16(c.ch.Number()), Unit: uint8(unit), Value: value})
	}
}

// apply enables or disables a channel on the card.
func (t *Gate) apply(c *gated) {
	if c.Enabled && !c.Paused {
		c.ch.Card().Enable()
	} else {
		c.ch.Card().Disable()
	}
}

// Enable lets a channel run at the turns of its guest, and Disable stops it between two steps.
func (t *Gate) Enable(ch Channel)  { t.enable(ch, true) }
func (t *Gate) Disable(ch Channel) { t.enable(ch, false) }

func (t *Gate) enable(ch Channel, on bool) {
	found := t.with(ch, func(c *gated) {
		c.Enabled = on
		t.apply(c)
		t.look(c)
		t.step()
	})
	if !found {
		t.apply(&gated{ch: ch, ChannelState: ChannelState{Enabled: on}})
	}
}

// with calls f, with the lock held and all that runs charged, if a channel has a gate. It reports
// whether it has.
func (t *Gate) with(ch Channel, f func(c *gated)) bool {
	if t == nil {
		return false
	}
	t.lock()
	defer t.mu.Unlock()
	id := int(ch.Card().ID())
	if id >= len(t.chans) || t.chans[id] == nil || t.chans[id].ch != ch {
		return false
	}
	t.refresh()
	f(t.chans[id])
	return true
}

// unsettled reports whether the card may have news of a channel that the gate does not cause.
func (c *gated) unsettled() bool {
	return c.Inflight > 0 || c.Last.Running || c.Aborting || c.LastPut != c.Sent && (c.Stalled || c.Accepted != c.LastPut)
}

// charge charges the engine time of all channels that may run, before anything is concluded from what
// ended: a channel that gets work has the credit of a time at which the others have paid. For that the
// scheduler decides as of then, unless it did a moment ago.
func (t *Gate) charge() {
	last := t.metered
	for range 4 { // again if this thread stood still: all that is read is of one time
		t.metered = t.now()
		for _, c := range t.chans {
			if c != nil && c.unsettled() {
				t.meter(c)
			}
		}
		if t.at-t.metered < mostUncharged {
			break
		}
	}
	if t.at-last >= mostUncharged {
		t.step()
	}
}

// refresh charges what was used, unless that was a moment ago.
func (t *Gate) refresh() {
	if t.at-t.metered >= mostUncharged {
		t.charge()
	}
}

// meter charges the engine time of a channel since the last call.
func (t *Gate) meter(c *gated) {
	u := t.card.Use(c.ch.Card().ID())
	t.at = t.now()
	n := int(min(u.Ended-c.Last.Ended, uint64(c.Inflight)))
	if u.Idle {
		n = c.Inflight // the card has none of them; it may have skipped some
	}
	most := time.Duration(0)
	var busy [card.MaxEngines]time.Duration
	for i := range t.engines {
		busy[i] = u.Busy[i] - c.Last.Busy[i]
		if busy[i] > 0 {
			c.note(trace.Busy, i, uint64(busy[i]))
		}
		if busy[i] > most {
			c.Lane, most = i, busy[i]
		}
	}
	c.Last = u
	if u.Running && most > 0 {
		t.s.Running(t.at, c.Lane, c.Node)
	}
	for i, d := range busy[:t.engines] {
		if d > 0 && i != c.Lane {
			t.s.Complete(t.at, sched.Done{Channel: c.Node, Engine: i, Busy: d})
		}
	}
	if n > 0 || busy[c.Lane] > 0 {
		t.s.Complete(t.at, sched.Done{Channel: c.Node, Engine: c.Lane, Entries: n, Busy: busy[c.Lane]})
		c.Inflight -= n
	}
}

// settle tells the scheduler what the last look at a channel showed besides its time.
func (t *Gate) settle(c *gated) {
	if c.Accepted != c.LastPut {
		t.accept(c)
	}
	if c.Paused && !c.Last.Running {
		t.s.Paused(t.at, c.Node)
	}
	t.stall(c, c.Over || !c.Enabled || c.Last.Barred && !c.Paused)
	if c.Aborting && !c.Last.Running {
		c.Aborting = false
		t.drop(c)
	}
}

// look is meter and settle.
func (t *Gate) look(c *gated) {
	t.meter(c)
	t.settle(c)
}

func (t *Gate) stall(c *gated, on bool) {
	if c.Stalled != on {
		c.Stalled = on
		t.s.Stall(t.at, c.Node, on)
	}
}

// drop discards a channel's entries on the card and in its ring. The channel is off the card
// until it is bound again.
func (t *Gate) drop(c *gated) {
	t.s.Aborted(t.at, c.Node)
	c.Inflight, c.LastPut, c.Accepted = 0, c.Sent, c.Sent
	c.Stalled, c.Paused = false, false
	t.stall(c, true)
}

// First returns up to where the card executes a channel's ring as soon as it runs: without a
// scheduler up to put, else the gate forwards the rest.
func (t *Gate) First(put, get uint32) uint32 {
	if t == nil {
		return put
	}
	return get
}

// Submit takes note of a channel's GP_PUT. The guest's lock is held.
func (t *Gate) Submit(ch Channel, put uint32) {
	if t == nil {
		ch.Card().Doorbell(put)
		return
	}
	t.with(ch, func(c *gated) {
		t.doorbell(c, put)
		t.step()
	})
}

func (t *Gate) doorbell(c *gated, put uint32) {
	mask := c.Size - 1
	waiting := int((c.LastPut - c.Sent) & mask)
	if _, ok := sched.Added(c.LastPut, put, c.Size, waiting); !ok {
		// The guest moved GP_PUT backwards, or the value is out of range.
		c.ch.Guest().CountBadPut()
		t.s.Withdraw(t.at, c.Node)
		c.LastPut, c.Accepted = c.Sent, c.Sent
		if put >= c.Size { // the card refuses it and reports that to the driver
			c.Bad = true
			c.ch.Card().Doorbell(put)
			return
		}
	}
	c.LastPut = put
	if c.Bad {
		c.Bad = false
		if c.LastPut == c.Sent { // GP_PUT is unchanged, but the card has dropped the entries
			c.ch.Card().Doorbell(put)
		}
	}
	if c.Stalled { // nobody looked at it while it had no work
		t.look(c)
	}
	t.accept(c)
}

// accept submits what the scheduler has not accepted yet.
func (t *Gate) accept(c *gated) {
	mask := c.Size - 1
	n := int((c.LastPut - c.Accepted) & mask)
	if n > 0 {
		c.Accepted = (c.Accepted + uint32(t.s.Submit(t.at, c.Node, n))) & mask
	}
}

// Waiting reports whether a channel has entries that the card has not, or that wait there for a turn.
func (t *Gate) Waiting(ch Channel) (waits bool) {
	t.with(ch, func(c *gated) { waits = c.LastPut != c.Sent || c.Paused })
	return waits
}

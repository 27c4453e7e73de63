// Package gate holds submissions back until the scheduler (package sched) selects them. It
// forwards a guest's GP_PUT as far as the scheduler allows. The entries after that stay in the
// guest's ring, and the guest's own USERD shows the GP_PUT that the guest wrote.
//
// One goroutine per Gate, from New to Close. The card wakes it when work has ended. It charges
// the engine time that the card reports (card.Meter). While work is on the card it also polls
// every pollInterval.
//
// Gate.mu guards everything. It is taken after the locks of a guest: Channel and Guest are
// called without it, except for Number, Space, Name, CountBadPut and the card's channel, which
// take no lock of a guest.
package gate

import (
	"fmt"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Gate shares the engine time of one card. A nil Gate forwards every submission immediately.
type Gate struct {
	card  card.Meter
	now   func() time.Duration
	alarm Alarm

	wake    chan struct{} // of capacity 1: poll the card
	closing chan struct{}
	working sync.WaitGroup

	mu     sync.Mutex
	s      *sched.Scheduler
	chans  [gf100.Channels]*gated // by the card's number
	nodes  map[sched.ID]*gated
	guests map[Guest]*share
	owners map[sched.ID]Guest
	later  deferredWork
	recent bool          // something was forwarded since the goroutine polled
	due    time.Duration // when the goroutine polls again; zero while it does
}

// deferredWork is work of the goroutine that needs a guest's lock, which is taken before
// the gate's.
type deferredWork struct {
	alerts  []sched.Alert
	resumed []*gated
}

func (w *deferredWork) empty() bool { return len(w.alerts)+len(w.resumed) == 0 }

// share is a guest in the scheduler's tree.
type share struct {
	node   sched.ID
	by     Grouping
	groups map[groupKey]*group
	kernel groupKey // of the channel that was bound first since there was none
	first  bool     // there was one
}

// group is one process of a guest, as Grouping defines processes.
type group struct {
	key   groupKey
	node  sched.ID
	chans int
}

// gated is a channel with its gate.
type gated struct {
	ch    Channel
	node  sched.ID
	group *group

	size     uint32 // entries of the ring
	lastPut  uint32 // GP_PUT as the guest wrote it last
	accepted uint32 // the part that the scheduler has accepted
	sent     uint32 // as the card has it

	inflight int
	lane     int // index in lanes of the engine that worked for it last
	last     card.Use
	stalled  bool // reported to the scheduler as waiting for a semaphore
	over     bool // it has ended, or the card does not stop it
	aborting bool // it is to leave the card
	bad      bool // the card was given a GP_PUT that is not in the ring
	held     bool // bound in the middle of an entry; resumes at its turn
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

// lanes are the engines whose time is shared.
var lanes = [...]int{gf100.EngineGR, gf100.EngineCE0, gf100.EngineCE1}

// pollInterval is the time between polls of a card that has work and raises no interrupt.
const pollInterval = 2 * time.Millisecond

// Guest is a guest that shares the card. It is a key of a map.
type Guest interface {
	Name() string
	// CountBadPut counts a GP_PUT that cannot be.
	CountBadPut()
	// Quarantine stops all of the guest's channels.
	Quarantine(reason string)
}

// Channel is a channel of a guest.
type Channel interface {
	Card() card.Channel
	Guest() Guest
	Number() uint8 // as its guest counts
	// Space names its address space: the directory in the guest's memory.
	Space() (dir uint64, target shadowpt.Target)
	// Resume lets the channel continue the entry in which it was unbound.
	Resume()
	// Abort ends the channel: its request does not end on an engine. It calls Aborted.
	Abort(engine int)
}

// New makes a gate in front of a card that reports engine time by channel. w wakes it; nil is a
// timer.
func New(m card.Meter, cfg sched.Config, now func() time.Duration, w Alarm) (*Gate, error) {
	if w == nil {
		w = timer{time.NewTimer(time.Hour)}
	}
	if m == nil {
		return nil, fmt.Errorf("aggregator: this card does not report engine time by channel, so use no scheduler")
	}
	s, err := sched.New(cfg, len(lanes), now())
	if err != nil {
		return nil, fmt.Errorf("aggregator: scheduler: %w", err)
	}
	t := &Gate{
		card: m, now: now, alarm: w, s: s, wake: make(chan struct{}, 1), closing: make(chan struct{}),
		nodes: make(map[sched.ID]*gated), guests: make(map[Guest]*share), owners: make(map[sched.ID]Guest),
	}
	m.OnUse(t.requestPoll)
	t.working.Add(1)
	go t.run()
	t.requestPoll()
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

// requestPoll makes the goroutine poll the card. It never blocks.
func (t *Gate) requestPoll() {
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
		w, next := t.poll()
		t.do(w)
		t.alarm.Reset(next)
	}
}

// poll charges completed work and forwards the next. It returns the work that must run without
// the gate's lock, and the time of the next poll.
func (t *Gate) poll() (w deferredWork, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, t.due = time.Hour, 0
	if t.recent {
		next = pollInterval
	}
	t.recent = false
	for _, c := range t.chans {
		if c == nil {
			continue
		}
		t.meter(c)
		if c.inflight > 0 || c.aborting {
			next = pollInterval
		}
	}
	now := t.step()
	if t.recent {
		next = pollInterval
	}
	if at := t.s.Timer(); at-now < next {
		next = max(at-now, 0)
	}
	w, t.later = t.later, deferredWork{}
	t.due = now + next
	return w, next
}

// step forwards the submissions that the scheduler selects. t.mu is held.
func (t *Gate) step() time.Duration {
	now := t.now()
	for {
		f, ok := t.s.Next(now)
		if !ok {
			break
		}
		if c := t.nodes[f.Channel]; c != nil {
			t.forward(c, f.Entries)
		}
	}
	for a, ok := t.s.Alert(); ok; a, ok = t.s.Alert() {
		t.later.alerts = append(t.later.alerts, a)
	}
	at := t.s.Timer() // always set: a selection may be due at a time without an event
	if t.recent {
		at = min(at, now+pollInterval)
	}
	if !t.later.empty() || at < t.due {
		t.due = at
		t.requestPoll()
	}
	return now
}

// forward lets the card have n entries more.
func (t *Gate) forward(c *gated, n int) {
	c.inflight += n
	t.recent = true
	if c.held {
		c.held = false
		t.later.resumed = append(t.later.resumed, c)
		n--
	}
	if n == 0 {
		return
	}
	c.sent = (c.sent + uint32(n)) & (c.size - 1)
	c.ch.Card().Doorbell(c.sent)
}

// meter charges the engine time of a channel since the last call.
func (t *Gate) meter(c *gated) {
	u := t.card.Use(c.ch.Card().ID())
	now := t.now()
	t.charge(now, c, &u)
	c.last = u
	if c.accepted != c.lastPut {
		t.accept(now, c)
	}
	t.stall(now, c, c.over || u.Barred && !c.held)
	if c.aborting && !u.Running {
		c.aborting = false
		t.drop(now, c)
	}
}

func (t *Gate) charge(now time.Duration, c *gated, u *card.Use) {
	n := int(min(u.Ended-c.last.Ended, uint64(c.inflight)))
	if u.Idle {
		n = c.inflight // the card has none of them; it may have skipped some
	}
	most := time.Duration(0)
	var busy [len(lanes)]time.Duration
	for i, e := range lanes {
		busy[i] = u.Busy[e] - c.last.Busy[e]
		if busy[i] > most {
			c.lane, most = i, busy[i]
		}
	}
	if u.Running && most > 0 {
		t.s.Running(now, c.lane, c.node)
	}
	if c.inflight == 0 {
		return
	}
	for i, d := range busy {
		if d > 0 && i != c.lane {
			t.s.Complete(now, sched.Done{Channel: c.node, Engine: i, Busy: d})
		}
	}
	if n > 0 || busy[c.lane] > 0 {
		t.s.Complete(now, sched.Done{Channel: c.node, Engine: c.lane, Entries: n, Busy: busy[c.lane]})
		c.inflight -= n
	}
}

func (t *Gate) stall(now time.Duration, c *gated, on bool) {
	if c.stalled != on {
		c.stalled = on
		t.s.Stall(now, c.node, on)
	}
}

// drop discards a channel's entries on the card and in its ring. The channel is off the card
// until it is bound again.
func (t *Gate) drop(now time.Duration, c *gated) {
	t.s.Aborted(now, c.node)
	c.inflight, c.lastPut, c.accepted = 0, c.sent, c.sent
	c.stalled, c.held = false, false
	t.stall(now, c, true)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.chans[ch.Card().ID()]
	if c == nil || c.ch != ch {
		return
	}
	t.doorbell(c, put)
	t.step()
}

func (t *Gate) doorbell(c *gated, put uint32) {
	now := t.now()
	mask := c.size - 1
	waiting := int((c.lastPut - c.sent) & mask)
	if _, ok := sched.Added(c.lastPut, put, c.size, waiting); !ok {
		// The guest moved GP_PUT backwards, or the value is out of range.
		c.ch.Guest().CountBadPut()
		t.s.Withdraw(now, c.node)
		c.lastPut, c.accepted = c.sent, c.sent
		if put >= c.size { // the card refuses it and reports that to the driver
			c.bad = true
			c.ch.Card().Doorbell(put)
			return
		}
	}
	c.lastPut = put
	if c.bad {
		c.bad = false
		if c.lastPut == c.sent { // GP_PUT is unchanged, but the card has dropped the entries
			c.ch.Card().Doorbell(put)
		}
	}
	t.accept(now, c)
}

// accept submits what the scheduler has not accepted yet.
func (t *Gate) accept(now time.Duration, c *gated) {
	mask := c.size - 1
	n := int((c.lastPut - c.accepted) & mask)
	if n > 0 {
		c.accepted = (c.accepted + uint32(t.s.Submit(now, c.node, n))) & mask
	}
}

// Waiting reports whether a channel has entries that the card has not.
func (t *Gate) Waiting(ch Channel) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.chans[ch.Card().ID()]
	return c != nil && c.ch == ch && (c.lastPut != c.sent || c.held)
}

// Holds reports whether a channel may not run yet.
func (t *Gate) Holds(ch Channel) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.chans[ch.Card().ID()]
	return c != nil && c.ch == ch && c.held
}

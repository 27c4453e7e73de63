package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// The engines of the model: graphics with compute, and one for copies.
const (
	Graphics = 0
	Copier   = 1
	Engines  = 2
)

// Rig joins a scheduler, a card and clients.
type Rig struct {
	Sched      *sched.Scheduler
	Card       *Card
	Clients    []*Client
	Now        time.Duration
	Steps      int // of the simulation
	MostOnCard int // requests at once, of the graphics engine

	// OnAlert is called with the scheduler's alerts, if set. One that is not handled is done: the
	// channel is aborted.
	OnAlert func(a sched.Alert) (handled bool)

	// Late is the time between two looks at the channels that wait for a semaphore. Zero sees every
	// change at once.
	Late time.Duration

	// Steps of tests, after the scheduler decides. They return when they are due again.
	after []func() (next time.Duration)

	looked time.Duration // with Late
	charge time.Duration // when channels that run are charged next
	onCard int
	lines  []*line // by the card's channel
	free   []int   // channels of the card
	byID   map[sched.ID]*line
	all    []*Client // the clients, and those that tests drive
	fluid  fluid
	seed   uint64
}

// NewRig sets a mix on a card that a scheduler of this configuration shares.
func NewRig(c sched.Config, m Mix, seed uint64) (*Rig, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	s, err := sched.New(c, Engines, 0)
	if err != nil {
		return nil, err
	}
	r := &Rig{Sched: s, Card: NewCard(Engines, 0), byID: make(map[sched.ID]*line), seed: seed}
	r.fluid.reset()
	for i := range m.Guests {
		if err := r.add(&m.Guests[i], sched.Card, 0, "", 0, false); err != nil {
			return nil, err
		}
	}
	r.fluid.clients, r.all = r.Clients, slices.Clone(r.Clients)
	return r, nil
}

// add makes the nodes and clients of a part of the mix.
func (r *Rig) add(n *Node, parent, guest sched.ID, prefix string, above int, merged bool) error {
	for i := range n.Count {
		name := n.Name
		if n.Count > 1 {
			name = fmt.Sprintf("%s-%d", n.Name, i+1)
		}
		c := sched.NodeConfig{Name: name, Weight: n.Weight, Cap: n.Cap, Priority: n.Priority, Limit: n.Limit, Queued: n.Queued}
		at := r.fluid.grow(above, &c, r.Sched.Config.Credit.Period)
		id := parent
		if !merged {
			var err error
			if id, err = r.Sched.AddNode(0, parent, c); err != nil {
				return fmt.Errorf("%s%s: %w", prefix, name, err)
			}
		}
		g := guest
		if g == 0 {
			g = id
		}
		if n.Load == nil {
			for j := range n.Nodes {
				if err := r.add(&n.Nodes[j], id, g, prefix+name+"/", at, merged || n.Merged); err != nil {
					return err
				}
			}
			continue
		}
		k := &Client{
			Name: prefix + name, Node: id, Guest: g, load: *n.Load, parent: parent, config: c, ownGroup: !merged, leaf: at, dies: never,
			source: throttle.NewSource(*n.Load, r.clientSeed(len(r.Clients))),
			wake:   n.Load.Start,
		}
		if n.Load.Life > 0 {
			k.dies = n.Load.Start + n.Load.Life
		}
		r.Clients = append(r.Clients, k)
	}
	return nil
}

// Run advances the time to until.
func (r *Rig) Run(until time.Duration) error {
	for {
		r.Steps++
		for _, k := range r.all {
			if k.next() <= r.Now {
				if err := r.act(k); err != nil {
					return err
				}
			}
		}
		next := until
		r.Dispatch()
		for _, step := range r.after {
			next = min(next, step())
		}
		if r.reportStalls() {
			continue
		}
		next = min(next, r.Card.Next(), r.Sched.Timer())
		if r.Late > 0 && len(r.Card.semaphores) > 0 {
			next = min(next, r.looked+r.Late)
		}
		if r.Card.Interrupts && r.onCard > 0 {
			next = min(next, r.charge)
		}
		for _, k := range r.all {
			next = min(next, k.next())
		}
		next = max(next, r.Now)
		r.fluid.advance(r, next)
		r.Now = next
		for _, d := range r.Card.Step(next) {
			r.complete(d)
		}
		r.reportStalls()
		r.chargeRunning()
		if r.Now >= until {
			r.Dispatch()
			return nil
		}
	}
}

// Dispatch forwards the entries that the scheduler selects, and executes its alerts. Before
// that it reports the running channels, as a card's engine status does: only a running
// channel can have the request that does not end.
func (r *Rig) Dispatch() {
	for e := range Engines {
		id := sched.ID(0)
		if on := r.Card.Running(e); on >= 0 {
			id = r.lines[on].id
		}
		r.Sched.Running(r.Now, e, id)
	}
	for {
		f, ok := r.Sched.Next(r.Now)
		if !ok {
			if r.reportStalls() {
				continue
			}
			break
		}
		l := r.byID[f.Channel]
		if f.Pause {
			r.Card.Pause(r.Now, l.card)
			l.paused = true
			r.reportPaused(l)
			continue
		}
		r.Card.Resume(r.Now, l.card)
		l.paused = false
		for range f.Entries {
			q := l.waiting[0]
			l.waiting = l.waiting[1:]
			if k := l.client; k.load.Alone > 0 && f.Engine == Graphics && r.Sched.Engines[Graphics].Alone == k.Node {
				q.Busy = k.load.Alone // an entry's pushbuffer can be written until it is fetched
			}
			r.Card.Push(r.Now, l.card, q)
			r.onCard += 1 - f.Engine
			r.MostOnCard = max(r.MostOnCard, r.onCard)
		}
	}
	for {
		a, ok := r.Sched.Alert()
		if !ok {
			return
		}
		if r.OnAlert != nil && r.OnAlert(a) {
			continue
		}
		if l := r.byID[a.Channel]; l != nil && (a.Kind == sched.Abort || a.Kind == sched.Reset) {
			r.abort(l)
			l.client.Stats.Aborted++
		}
	}
}

// chargePeriod is how often channels that run are charged if the card tells their time.
const chargePeriod = 2 * time.Millisecond

// chargeRunning charges the channels that run.
func (r *Rig) chargeRunning() {
	if !r.Card.Interrupts || r.Now < r.charge {
		return
	}
	r.charge = r.Now + chargePeriod
	for e := range Engines {
		if on := r.Card.Running(e); on >= 0 {
			l := r.lines[on]
			r.Sched.Complete(r.Now, sched.Done{Channel: l.id, Engine: e, Busy: r.unpaid(l)})
		}
	}
}

// unpaid is what a channel used and was not charged for.
func (r *Rig) unpaid(l *line) time.Duration {
	used := r.Card.Used(l.card)
	d := used - l.charged
	l.charged = used
	return d
}

// reportPaused tells the scheduler if a channel has left the engines.
func (r *Rig) reportPaused(l *line) {
	if !l.paused || !r.Card.Off(l.card) {
		return
	}
	l.paused = false
	if r.Card.Interrupts {
		r.Sched.Complete(r.Now, sched.Done{Channel: l.id, Engine: Graphics, Busy: r.unpaid(l)})
	}
	r.Sched.Paused(r.Now, l.id)
}

// abort takes a client's channel off the card, as an aggregator does.
func (r *Rig) abort(l *line) {
	e := r.Card.Abort(r.Now, l.card)
	r.Sched.Complete(r.Now, sched.Done{Channel: l.id, Engine: max(e, 0), Busy: r.unpaid(l)})
	if e == Graphics {
		r.onCard--
	}
	r.Sched.Aborted(r.Now, l.id)
	l.client.ended = true
	if l == l.client.channels[Graphics] {
		r.fluid.want(l.client, -l.client.wants)
	}
	l.client.wake, l.client.dies = never, never
	r.Dispatch()
}

// complete reports an ended request to the scheduler, the fluid and the client.
func (r *Rig) complete(d Completion) {
	l := r.lines[d.Channel]
	r.onCard -= 1 - d.Engine
	r.Sched.Complete(r.Now, sched.Done{Channel: l.id, Engine: d.Engine, Entries: 1, Busy: r.unpaid(l)})
	k := l.client
	if d.Engine == Graphics {
		r.fluid.want(k, -1)
	}
	k.Stats.Done++
	k.Stats.Busy[d.Engine] += d.Done - d.Began
	k.Stats.Last = d.Done
	k.Stats.note(d.Done - d.burst.at)
	r.finish(d.burst)
	r.vacate(l)
	r.reportPaused(l)
	if k.Stats.refused > 0 && !l.closed {
		k.Stats.refused--
		l.offer(r, 1)
	}
}

// reportStalls reports the channels that wait for a semaphore to the scheduler.
func (r *Rig) reportStalls() (changed bool) {
	if len(r.Card.semaphores) == 0 || r.Now < r.looked+r.Late {
		return false
	}
	r.looked = r.Now
	for _, l := range r.lines {
		if on := r.Card.Stalled(l.card); on != l.stalled {
			l.stalled = on
			r.Sched.Stall(r.Now, l.id, on)
			changed = true
		}
	}
	return changed
}

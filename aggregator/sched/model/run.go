package model

import (
	"container/heap"
	"fmt"
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

// Client is a process of the mix.
type Client struct {
	Name  string // path from its guest
	Node  sched.ID
	Guest sched.ID

	load     throttle.Load
	source   *throttle.Source
	parent   sched.ID // the group is made anew below it
	config   sched.NodeConfig
	own      bool     // the group is its own, not shared with its siblings
	lives    int      // processes so far
	channels [2]*line // by engine; made when first used
	flying   int      // bursts unfinished
	wake     time.Duration
	dies     time.Duration
	order    int  // in the heap of wakes
	ended    bool // its load is
	poison   bool // its next request is endless
	waits    int  // semaphores of a chain
	signals  int
	chained  int // requests that wait
	nest     *nest

	path   []share // for the ideal
	part   float64 // which that was
	partAt int     // after so many changes of who has work
	Stats  Stats
}

// line is a channel of a client.
type line struct {
	client  *Client
	id      sched.ID
	card    int
	waiting []job // submitted, not forwarded
	head    int
	stalled bool
	closed  bool
}

// job is a submitted request.
type job struct {
	r     Request
	burst *burst
}

type burst struct {
	client *Client
	at     time.Duration
	left   int
}

// Rig joins a scheduler, a card and clients.
type Rig struct {
	Sched      *sched.Scheduler
	Card       *Card
	Clients    []*Client
	Now        time.Duration
	Steps      int // of the simulation
	MostOnCard int // requests at once, of the graphics engine

	// OnForward and OnAlert see what the scheduler says, if set. An alert that
	// is not handled is done: the channel is aborted.
	OnForward func(now time.Duration, f sched.Forward)
	OnAlert   func(a sched.Alert) (handled bool)

	meter  sched.Meter
	onCard int
	nests  []*nest
	lines  []*line // by the card's channel
	spare  []int   // channels of the card
	byID   map[sched.ID]*line
	wakes  wakeHeap
	fluid  fluid
	seed   uint64
	bursts []*burst // done, to be used again
	onTags []*burst // of the requests on the card, by their tags
	tags   []int    // that no request on the card has
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
	for i := range m.Guests {
		if err := r.add(&m.Guests[i], sched.Card, 0, "", nil, false); err != nil {
			return nil, err
		}
	}
	r.fluid.init(r.Clients)
	return r, nil
}

// add makes the nodes and clients of a part of the mix.
func (r *Rig) add(n *Node, parent, guest sched.ID, prefix string, path []share, merged bool) error {
	for i := range n.Count {
		name := n.Name
		if n.Count > 1 {
			name = fmt.Sprintf("%s-%d", n.Name, i+1)
		}
		c := sched.NodeConfig{Name: name, Weight: n.Weight, Cap: n.Cap, Priority: n.Priority, Policy: n.Policy, Limit: n.Limit, Queued: n.Queued}
		at := share{node: len(r.fluid.nodes), weight: c.Weight}
		if at.weight == 0 {
			at.weight = sched.BaseWeight
		}
		r.fluid.nodes = append(r.fluid.nodes, fluidNode{})
		own := append(append([]share(nil), path...), at)
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
				if err := r.add(&n.Nodes[j], id, g, prefix+name+"/", own, merged || n.Merged); err != nil {
					return err
				}
			}
			continue
		}
		k := &Client{
			Name: prefix + name, Node: id, Guest: g, load: *n.Load, parent: parent, config: c, own: !merged, path: own, dies: never,
			source: throttle.NewSource(*n.Load, r.seed*0x9e3779b97f4a7c15+uint64(len(r.Clients))),
			wake:   n.Load.Start,
		}
		if n.Load.Life > 0 {
			k.dies = n.Load.Start + n.Load.Life
		}
		r.Clients = append(r.Clients, k)
		r.push(k)
	}
	return nil
}

func (r *Rig) push(k *Client) { heap.Push(&r.wakes, k) }

// Run lets the time come to until.
func (r *Rig) Run(until time.Duration) error {
	for {
		r.Steps++
		for len(r.wakes) > 0 && r.wakes[0].next() <= r.Now {
			if err := r.act(r.wakes[0]); err != nil {
				return err
			}
		}
		next := until
		for _, n := range r.nests {
			next = min(next, n.dispatch(r))
		}
		r.Dispatch()
		next = min(next, r.Card.Next(), r.Sched.Timer())
		if len(r.wakes) > 0 {
			next = min(next, r.wakes[0].next())
		}
		next = max(next, r.Now)
		r.fluid.advance(r, next)
		r.Now = next
		for _, d := range r.Card.Step(next) {
			r.complete(d)
		}
		r.tellStalls()
		if r.Now >= until {
			r.Dispatch()
			return nil
		}
	}
}

// Dispatch forwards what the scheduler wants forwarded, and does what it asks for.
// Before that it tells what the card is at work for, as a card's engine status
// does: of many channels on the card only one can be the one that does not end.
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
			if r.tellStalls() {
				continue
			}
			break
		}
		if r.OnForward != nil {
			r.OnForward(r.Now, f)
		}
		l := r.byID[f.Channel]
		for range f.Entries {
			j := l.waiting[l.head]
			l.head++
			l.client.Stats.forwarded++
			j.r.tag = r.tag(j.burst)
			if k := l.client; k.load.Alone > 0 && f.Engine == Graphics && r.Sched.Sampling(Graphics) == k.Node {
				j.r.Busy = k.load.Alone // what a ring's entry names can be written until it is fetched
			}
			r.Card.Push(r.Now, l.card, j.r)
			r.onCard += 1 - f.Engine
			r.MostOnCard = max(r.MostOnCard, r.onCard)
		}
		if l.head > 256 && l.head*2 > len(l.waiting) {
			l.waiting = l.waiting[:copy(l.waiting, l.waiting[l.head:])]
			l.head = 0
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

// tag is what a request on the card is known by.
func (r *Rig) tag(b *burst) int {
	if last := len(r.tags) - 1; last >= 0 {
		t := r.tags[last]
		r.tags, r.onTags[t] = r.tags[:last], b
		return t
	}
	r.onTags = append(r.onTags, b)
	return len(r.onTags) - 1
}

// abort takes a client's channel off the card, as an aggregator does.
func (r *Rig) abort(l *line) {
	ran, e := r.Card.Abort(r.Now, l.card)
	if e >= 0 {
		r.Sched.Complete(r.Now, sched.Done{Channel: l.id, Engine: e, Busy: r.meter.Busy(e, r.Now-ran, r.Now)})
	}
	if e == Graphics {
		r.onCard--
	}
	r.Sched.Aborted(r.Now, l.id)
	l.client.ended = true
	l.client.wake, l.client.dies = never, never
	heap.Fix(&r.wakes, l.client.order)
	r.Dispatch()
}

// act does what a client does now: end a process, or ring a doorbell.
func (r *Rig) act(k *Client) error {
	if k.dies <= r.Now {
		if err := r.reborn(k); err != nil {
			return err
		}
		k.dies = r.Now + k.load.Life
	}
	if k.wake <= r.Now {
		k.wake = never
		for !k.ended && k.flying < k.load.Ahead {
			if k.load.Stop > 0 && r.Now >= k.load.Stop {
				k.ended = true
				break
			}
			if err := r.ring(k); err != nil {
				return err
			}
		}
	}
	heap.Fix(&r.wakes, k.order)
	return nil
}

// ring submits a burst.
func (r *Rig) ring(k *Client) error {
	b := r.burst()
	*b = burst{client: k, at: r.Now}
	var added [Engines]int
	for range k.load.Burst {
		q, ok := k.source.Next()
		if !ok {
			k.ended = true
			break
		}
		e := Graphics
		if q.Copy {
			e = Copier
		}
		l, err := r.line(k, e)
		if err != nil {
			return err
		}
		req := Request{Engine: e, Busy: q.Busy, Endless: k.poison, Wait: k.waits, Signal: k.signals}
		if k.poison = false; k.waits > 0 {
			k.chained++
			req.Value = k.chained
		}
		l.waiting = append(l.waiting, job{req, b})
		b.left++
		added[e]++
		k.Stats.Submitted++
	}
	if b.left == 0 {
		r.bursts = append(r.bursts, b)
		return nil
	}
	k.flying++
	r.fluid.backlog(r, k)
	for e, n := range added {
		if n > 0 {
			// What is over the guest's limit waits in the ring; it is offered again
			// with the next completion.
			l := k.channels[e]
			if k.nest != nil && e == Graphics {
				k.nest.submit(r, k, n)
				continue
			}
			l.offer(r, n)
		}
	}
	return nil
}

func (r *Rig) burst() *burst {
	last := len(r.bursts) - 1
	if last < 0 {
		return new(burst)
	}
	b := r.bursts[last]
	r.bursts = r.bursts[:last]
	return b
}

// offer submits n entries more.
func (l *line) offer(r *Rig, n int) {
	l.client.Stats.refused += n - r.Sched.Submit(r.Now, l.id, n)
}

// line returns a client's channel for an engine.
func (r *Rig) line(k *Client, e int) (*line, error) {
	if l := k.channels[e]; l != nil {
		return l, nil
	}
	id, err := r.Sched.AddChannel(r.Now, k.Node, e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.Name, err)
	}
	l := &line{client: k, id: id}
	r.seat(l)
	r.byID[id] = l
	k.channels[e] = l
	return l, nil
}

// seat gives a line a channel of the card: one that nobody uses any more, or a
// new one.
func (r *Rig) seat(l *line) {
	if last := len(r.spare) - 1; last >= 0 {
		l.card, r.spare = r.spare[last], r.spare[:last]
		r.lines[l.card] = l
		return
	}
	l.card = r.Card.AddChannel()
	r.lines = append(r.lines, l)
}

// vacate gives the channel of a line back that is closed.
func (r *Rig) vacate(l *line) {
	if l.closed && r.Card.Queued(l.card) == 0 {
		delete(r.byID, l.id)
		r.spare = append(r.spare, l.card)
	}
}

// reborn ends a process and begins another in its place: its group and channels
// are made anew.
func (r *Rig) reborn(k *Client) error {
	k.lives++
	for e, l := range k.channels {
		if l != nil {
			for range len(l.waiting) - l.head {
				b := l.waiting[l.head].burst
				l.head++
				r.finish(b)
			}
			l.closed = true
			r.Sched.Remove(r.Now, l.id)
			k.channels[e] = nil
			r.vacate(l)
		}
	}
	if k.own {
		r.Sched.Remove(r.Now, k.Node)
		id, err := r.Sched.AddNode(r.Now, k.parent, k.config)
		if err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		k.Node = id
	}
	k.wake = r.Now
	return nil
}

// complete tells everybody of a request that ended.
func (r *Rig) complete(d Completion) {
	l := r.lines[d.Channel]
	busy := r.meter.Busy(d.Engine, d.Came, d.Done)
	r.onCard -= 1 - d.Engine
	r.Sched.Complete(r.Now, sched.Done{Channel: l.id, Engine: d.Engine, Entries: 1, Busy: busy})
	b := r.onTags[d.Tag]
	r.tags = append(r.tags, d.Tag)
	k := l.client
	if k.nest != nil && d.Engine == Graphics {
		k.nest.complete(r, k, d)
	}
	k.Stats.Done++
	k.Stats.Busy[d.Engine] += d.Done - d.Began
	k.Stats.Last = d.Done
	k.Stats.note(d.Done - b.at)
	r.finish(b)
	r.vacate(l)
	heap.Fix(&r.wakes, k.order)
	if k.Stats.refused > 0 && !l.closed {
		k.Stats.refused--
		l.offer(r, 1)
	}
}

// finish takes a request off its burst, and plans the next doorbell.
func (r *Rig) finish(b *burst) {
	k := b.client
	if b.left--; b.left > 0 {
		return
	}
	r.bursts = append(r.bursts, b)
	k.flying--
	if k.flying == 0 {
		r.fluid.idle(k)
	}
	if !k.ended {
		k.wake = min(k.wake, r.Now+k.load.Think)
	}
}

// tellStalls tells the scheduler which channels wait for a semaphore.
func (r *Rig) tellStalls() (news bool) {
	if len(r.Card.semaphores) == 0 {
		return false
	}
	for _, l := range r.lines {
		if on := r.Card.Stalled(l.card); on != l.stalled {
			l.stalled = on
			r.Sched.Stall(r.Now, l.id, on)
			news = true
		}
	}
	return news
}

// next is when a client does something by itself.
func (k *Client) next() time.Duration { return min(k.wake, k.dies) }

// wakeHeap is clients by when they act.
type wakeHeap []*Client

func (h wakeHeap) Len() int { return len(h) }
func (h wakeHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.next() != b.next() {
		return a.next() < b.next()
	}
	return a.Name < b.Name
}
func (h wakeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].order, h[j].order = i, j
}
func (h *wakeHeap) Push(v any) {
	k := v.(*Client)
	k.order = len(*h)
	*h = append(*h, k)
}
func (h *wakeHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	*h = old[:len(old)-1]
	return k
}

// Finished tells whether a client's load has ended and all of it is done.
func (k *Client) Finished() bool { return k.ended && k.flying == 0 }

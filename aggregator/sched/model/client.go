package model

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// Client is a process of the mix.
type Client struct {
	Name  string // path from its guest
	Node  sched.ID
	Guest sched.ID

	load     throttle.Load
	source   *throttle.Source
	parent   sched.ID // the group is created again below it
	config   sched.NodeConfig
	ownGroup bool     // the group is its own, not shared with its siblings
	lives    int      // processes so far
	channels [2]*line // by engine; made when first used
	flying   int      // bursts unfinished
	wake     time.Duration
	dies     time.Duration
	ended    bool // its load is
	poison   bool // its next request is endless
	waits    int  // semaphores of a chain
	signals  int
	chained  int // requests that wait

	leaf  int     // in the fluid, 0 for none
	wants int     // requests of the graphics engine, unfinished
	ideal float64 // nanoseconds
	Stats Stats
}

// line is a channel of a client.
type line struct {
	client  *Client
	id      sched.ID
	card    int
	waiting []Request // submitted, not forwarded
	stalled bool
	closed  bool
	paused  bool          // the scheduler waits until it is
	charged time.Duration // of the card's Used
}

// burst is what one doorbell submitted.
type burst struct {
	client *Client
	at     time.Duration
	left   int
}

// act lets a client do what is due: end a process, or ring a doorbell.
func (r *Rig) act(k *Client) error {
	if k.dies <= r.Now {
		if err := r.restart(k); err != nil {
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
	return nil
}

// ring submits a burst.
func (r *Rig) ring(k *Client) error {
	b := &burst{client: k, at: r.Now}
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
		req := Request{Engine: e, Busy: q.Busy, Endless: k.poison, Wait: k.waits, Signal: k.signals, burst: b}
		if k.poison = false; k.waits > 0 {
			k.chained++
			req.Value = k.chained
		}
		l.waiting = append(l.waiting, req)
		b.left++
		added[e]++
		k.Stats.Submitted++
	}
	if b.left == 0 {
		return nil
	}
	k.flying++
	r.fluid.want(k, added[Graphics])
	for e, n := range added {
		if n > 0 {
			// What is over the guest's limit waits in the ring; it is offered again
			// with the next completion.
			k.channels[e].offer(r, n)
		}
	}
	return nil
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
	r.assignChannel(l)
	r.byID[id] = l
	k.channels[e] = l
	return l, nil
}

// assignChannel gives a line a channel of the card: a free one, or a new one.
func (r *Rig) assignChannel(l *line) {
	if last := len(r.free) - 1; last >= 0 {
		l.card, r.free = r.free[last], r.free[:last]
		r.lines[l.card] = l
		l.charged = r.Card.Used(l.card)
		return
	}
	l.card = r.Card.AddChannel()
	r.lines = append(r.lines, l)
}

// vacate frees the channel of a closed line.
func (r *Rig) vacate(l *line) {
	if l.closed && r.Card.Queued(l.card) == 0 {
		delete(r.byID, l.id)
		r.free = append(r.free, l.card)
	}
}

// restart ends a process and begins another in its place, with a new group and new channels.
func (r *Rig) restart(k *Client) error {
	k.lives++
	for e, l := range k.channels {
		if l != nil {
			if e == Graphics {
				r.fluid.want(k, -len(l.waiting))
			}
			for _, q := range l.waiting {
				r.finish(q.burst)
			}
			l.waiting, l.closed = nil, true
			r.Sched.Remove(r.Now, l.id)
			r.Card.Resume(r.Now, l.card) // what it has there ends
			k.channels[e] = nil
			r.vacate(l)
		}
	}
	if k.ownGroup {
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

// finish takes a request off its burst, and plans the next doorbell.
func (r *Rig) finish(b *burst) {
	k := b.client
	if b.left--; b.left > 0 {
		return
	}
	k.flying--
	if !k.ended {
		k.wake = min(k.wake, r.Now+k.load.Think)
	}
}

// next is when a client does something by itself.
func (k *Client) next() time.Duration { return min(k.wake, k.dies) }

// Finished reports whether a client's load has ended and all of it is done.
func (k *Client) Finished() bool { return k.ended && k.flying == 0 }

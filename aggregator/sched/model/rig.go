package model

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// What tests do to a rig that no mix describes.

// Drive lets a channel that the caller made keep some requests of one length
// unfinished until a time.
func (r *Rig) Drive(ch sched.ID, length time.Duration, ahead int, until time.Duration) *Client {
	l := throttle.Load{Busy: length, Burst: 1, Ahead: ahead, Stop: until}
	k := &Client{Name: "driven", load: l, source: throttle.NewSource(l, 0), wake: r.Now, dies: never}
	line := &line{client: k, id: ch}
	k.channels[Graphics] = line
	r.seat(line)
	r.byID[ch] = line
	r.push(k)
	return k
}

// Poison makes the next request of a client's one that does not end.
func (r *Rig) Poison(k *Client) { k.poison = true }

// Chain lets every request of one client wait for one more of the other.
func (r *Rig) Chain(waits, signals *Client) {
	r.Card.semaphores = append(r.Card.semaphores, 0)
	waits.waits, signals.signals = len(r.Card.semaphores), len(r.Card.semaphores)
}

// Channel is a client's channel of the graphics engine, zero before its first
// request.
func (r *Rig) Channel(k *Client) sched.ID {
	if l := k.channels[Graphics]; l != nil {
		return l.id
	}
	return 0
}

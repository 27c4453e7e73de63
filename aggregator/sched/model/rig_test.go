package model

import (
	"math"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// Operations of tests that a mix cannot describe.

// Drive lets a channel that the caller made keep some requests of one length
// unfinished until a time.
func (r *Rig) Drive(ch sched.ID, length time.Duration, ahead int, until time.Duration) *Client {
	l := throttle.Load{Busy: length, Burst: 1, Ahead: ahead, Stop: until}
	k := &Client{Name: "driven", load: l, source: throttle.NewSource(l, 0), wake: r.Now, dies: never}
	line := &line{client: k, id: ch}
	k.channels[Graphics] = line
	r.assignChannel(line)
	r.byID[ch] = line
	r.all = append(r.all, k)
	return k
}

// Poison makes the next request of a client's one that does not end.
func (r *Rig) Poison(k *Client) { k.poison = true }

// Chain lets every request of one client wait for one more of the other.
func (r *Rig) Chain(waits, signals *Client) {
	r.Card.semaphores = append(r.Card.semaphores, 0)
	waits.waits, signals.signals = len(r.Card.semaphores), len(r.Card.semaphores)
}

// flood is a guest's channels whose requests all wait for one semaphore. A processor of the guest
// releases it some time after the last of them has reached the card.
type flood struct {
	clients   []*Client
	semaphore int
	after     time.Duration
	parked    int
	at        time.Duration // when parked changed
}

// Flood lets channels that the caller made keep one request each waiting for a semaphore. All that
// wait are released when no more has come for a time.
func (r *Rig) Flood(channels []sched.ID, length, after, until time.Duration) (clients []*Client) {
	r.Card.semaphores = append(r.Card.semaphores, 1)
	f := &flood{semaphore: len(r.Card.semaphores), after: after}
	for _, ch := range channels {
		k := r.Drive(ch, length, 1, until)
		k.waits, k.chained = f.semaphore, 1
		f.clients = append(f.clients, k)
	}
	r.after = append(r.after, func() time.Duration { return f.release(r) })
	return f.clients
}

// release releases the requests of a flood if it is time. It returns when to call it again.
func (f *flood) release(r *Rig) time.Duration {
	n := 0
	for _, k := range f.clients {
		if r.Card.Stalled(k.channels[Graphics].card) {
			n++
		}
	}
	if n != f.parked {
		f.parked, f.at = n, r.Now
	}
	if n > 0 && r.Now >= f.at+f.after {
		r.Card.Release(r.Now, f.semaphore)
		f.parked, f.at = 0, r.Now
	}
	if f.parked == 0 {
		return never
	}
	return f.at + f.after
}

// Channel is a client's channel of the graphics engine, zero before its first
// request.
func (r *Rig) Channel(k *Client) sched.ID {
	if l := k.channels[Graphics]; l != nil {
		return l.id
	}
	return 0
}

// Stop lets a client submit nothing more.
func (k *Client) Stop() { k.ended = true }

// Share is the part of the graphics engine's time that a client had.
func (r *Rig) Share(k *Client) float64 {
	total := time.Duration(0)
	for _, c := range r.Clients {
		total += c.Stats.Got
	}
	if total == 0 {
		return 0
	}
	return float64(k.Stats.Got) / float64(total)
}

// ShareError is the largest difference between a client's real and ideal share of the card.
func (r *Rig) ShareError() (worst float64) {
	total := time.Duration(0)
	for _, c := range r.Clients {
		total += c.Stats.Got
	}
	for _, c := range r.Clients {
		if total > 0 {
			worst = max(worst, math.Abs(float64(c.Stats.Got-c.Stats.Ideal))/float64(total))
		}
	}
	return worst
}

// Jain is Jain's index of the clients' real over ideal time: 1 is fair.
func (r *Rig) Jain() float64 {
	sum, squares, n := 0.0, 0.0, 0
	for _, c := range r.Clients {
		if c.Stats.Ideal == 0 {
			continue
		}
		x := float64(c.Stats.Got) / float64(c.Stats.Ideal)
		sum, squares, n = sum+x, squares+x*x, n+1
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(n) * squares)
}

package model

import (
	"math"
	"slices"
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

// nest is a scheduler inside a guest: it submits to us what it forwards.
type nest struct {
	sched     *sched.Scheduler
	clients   []*Client
	ids       []sched.ID
	ringTimes [][]time.Duration // doorbell times of the unfinished requests of each client
	began     time.Duration     // when its own scheduler assumes that the request under way began
}

// Nest makes a guest share its part among its processes by itself: their doorbells go to
// the guest's own scheduler, which submits to ours.
func (r *Rig) Nest(c sched.Config, clients []*Client) *nest {
	s, err := sched.New(c, 1, r.Now)
	if err != nil {
		panic(err) // a test's mistake
	}
	n := &nest{sched: s, clients: clients, ringTimes: make([][]time.Duration, len(clients))}
	for i, k := range clients {
		g, err := s.AddNode(r.Now, sched.Card, sched.NodeConfig{Name: k.Name})
		if err != nil {
			panic(err)
		}
		id, err := s.AddChannel(r.Now, g, 0)
		if err != nil {
			panic(err)
		}
		n.ids = append(n.ids, id)
		k.rings = func(entries int) { s.Submit(r.Now, id, entries) }
		k.completed = func(d Completion) { n.complete(r, i, d) }
	}
	r.before = append(r.before, func() time.Duration { return n.dispatch(r) })
	return n
}

// Imagined is the average length of a client's requests as its guest's own scheduler
// measures it, over the true length: 1 is exact.
func (n *nest) Imagined(r *Rig, client int, length time.Duration) float64 {
	a, _ := n.sched.Account(r.Now, n.ids[client], 0)
	if a.Done == 0 {
		return 0
	}
	return float64(a.Busy) / float64(a.Done) / float64(length)
}

// complete is the guest's view of a completion: the time since the previous one, or since
// the doorbell. The guest cannot see when other guests had the card.
func (n *nest) complete(r *Rig, client int, d Completion) {
	ringTimes := &n.ringTimes[client]
	busy := d.Done - max((*ringTimes)[0], n.began)
	*ringTimes = (*ringTimes)[1:]
	n.began = d.Done
	n.sched.Complete(r.Now, sched.Done{Channel: n.ids[client], Entries: 1, Busy: busy})
}

func (n *nest) dispatch(r *Rig) (timer time.Duration) {
	for {
		f, ok := n.sched.Next(r.Now)
		if !ok {
			return n.sched.Timer()
		}
		i := slices.Index(n.ids, f.Channel)
		for range f.Entries {
			n.ringTimes[i] = append(n.ringTimes[i], r.Now)
		}
		n.clients[i].channels[Graphics].offer(r, f.Entries)
	}
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

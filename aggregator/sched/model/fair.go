package model

import (
	"math"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// Fair runs a mix on an ideal, infinitely divisible card for d of its time: at every moment all
// processes with work share it by priority, weight and cap. It returns each client's time on the
// graphics engine, in the order of [Rig.Clients]. A client that pauses gets no more than its
// load requests.
func (r *Rig) Fair(d time.Duration) []time.Duration {
	var engines [Engines]*fluid
	var clients []*fairClient
	for e := range engines {
		f := new(fluid)
		f.nodes = append(f.nodes, r.fluid.nodes...)
		for i := range f.nodes {
			n := &f.nodes[i]
			n.active, n.limited = 0, n.cap > 0
		}
		f.stale = true
		engines[e] = f
	}
	for i, k := range r.Clients {
		clients = append(clients, &fairClient{load: k.load, leaf: k.leaf, wake: float64(k.load.Start), source: throttle.NewSource(k.load, r.clientSeed(i))})
	}
	for now, end := 0.0, float64(d); now < end; {
		next := end
		for _, k := range clients {
			k.act(now, &engines)
			next = min(next, k.wake)
		}
		for e, f := range engines {
			if f.stale {
				f.solve()
			}
			for _, k := range clients {
				if len(k.queues[e]) > 0 && f.nodes[k.leaf].rate > 0 {
					next = min(next, now+k.queues[e][0].left/f.nodes[k.leaf].rate)
				}
			}
		}
		for e, f := range engines {
			for _, k := range clients {
				k.serve(e, f, next, next-now)
			}
		}
		now = next
	}
	out := make([]time.Duration, len(clients))
	for i, k := range clients {
		out[i] = time.Duration(math.Round(k.used))
	}
	return out
}

// fairClient is a client on the divided card.
type fairClient struct {
	load   throttle.Load
	source *throttle.Source
	leaf   int
	queues [Engines][]fairRequest
	flying int     // bursts
	wake   float64 // nanoseconds
	ended  bool
	used   float64
}

type fairRequest struct {
	left  float64 // nanoseconds of an engine
	burst *int    // requests that have not ended
}

// act rings the doorbells that are due.
func (k *fairClient) act(now float64, engines *[Engines]*fluid) {
	if now < k.wake {
		return
	}
	k.wake = math.Inf(1)
	for !k.ended && k.flying < k.load.Ahead {
		if k.load.Stop > 0 && now >= float64(k.load.Stop) {
			k.ended = true
			return
		}
		left := 0
		for range k.load.Burst {
			q, ok := k.source.Next()
			if k.ended = !ok; !ok {
				break
			}
			e := Graphics
			if q.Copy {
				e = Copier
			}
			if len(k.queues[e]) == 0 {
				engines[e].activate(k.leaf, 1)
			}
			k.queues[e] = append(k.queues[e], fairRequest{float64(q.Busy), &left})
			left++
		}
		if left > 0 {
			k.flying++
		}
	}
}

// serve gives a client its part of an engine for some time.
func (k *fairClient) serve(e int, f *fluid, now, d float64) {
	if len(k.queues[e]) == 0 {
		return
	}
	q := &k.queues[e][0]
	part := min(d*f.nodes[k.leaf].rate, q.left)
	q.left -= part
	if e == Graphics {
		k.used += part
	}
	if q.left > 1 { // nanoseconds; less is what sums of fractions lose
		return
	}
	if *q.burst--; *q.burst == 0 {
		k.flying--
		if !k.ended {
			k.wake = min(k.wake, now+float64(k.load.Think))
		}
	}
	if k.queues[e] = k.queues[e][1:]; len(k.queues[e]) == 0 {
		f.activate(k.leaf, -1)
	}
}

// activate counts one client more, or less, with work.
func (f *fluid) activate(leaf, by int) {
	for at := leaf; at >= 0; at = f.nodes[at].parent {
		f.nodes[at].active += by
	}
	f.stale = true
}

// clientSeed is the seed of a client's load.
func (r *Rig) clientSeed(client int) uint64 { return r.seed*0x9e3779b97f4a7c15 + uint64(client) }

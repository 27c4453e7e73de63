package model

import (
	"math"
	"slices"
	"time"
)

// Stats are of one client.
type Stats struct {
	Submitted int
	Done      int
	Aborted   int
	Busy      [Engines]time.Duration
	Last      time.Duration // when its last request ended

	// Of the graphics engine, while it had work: what it was owed when those
	// with work share by weight, what it got, and how far the two were apart.
	Owed, Got time.Duration
	Lag       time.Duration
	Behind    time.Duration // now; below zero it is ahead

	forwarded int
	refused   int
	latencies []time.Duration
	owedAt    time.Duration // when it last got work
	gotAt     time.Duration
}

func (s *Stats) note(latency time.Duration) { s.latencies = append(s.latencies, latency) }

// Latency returns a quantile of the times from doorbell to end.
func (s *Stats) Latency(q float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	slices.Sort(s.latencies)
	return s.latencies[min(len(s.latencies)-1, int(q*float64(len(s.latencies))))]
}

// fluid is the ideal: whoever has work is served at once, by weight, level by
// level.
type fluid struct {
	nodes   []fluidNode
	clients []*Client
	changes int // of who has work
}

// fluidNode is a node of the mix.
type fluidNode struct {
	active int // clients with work at or below
	below  int // weight of the children with work
}

// share is a step from the card down to a client.
type share struct{ node, weight int }

func (f *fluid) init(clients []*Client) {
	f.nodes = append(f.nodes, fluidNode{}) // the card
	f.clients = clients
}

// backlog tells that a client has work, if it had none.
func (f *fluid) backlog(r *Rig, k *Client) {
	if k.flying == 1 {
		f.count(k, 1)
		// What was owed before is settled: it did not want it.
		k.Stats.owedAt, k.Stats.gotAt, k.Stats.Behind = k.Stats.Owed, k.Stats.Got, 0
	}
}

func (f *fluid) idle(k *Client) { f.count(k, -1) }

func (f *fluid) count(k *Client, n int) {
	for i := len(k.path) - 1; i >= 0; i-- {
		node := &f.nodes[k.path[i].node]
		was := node.active > 0
		node.active += n
		if is := node.active > 0; is != was {
			f.changes++
			parent := len(f.nodes) - 1
			if i > 0 {
				parent = k.path[i-1].node
			}
			f.nodes[parent].below += n * k.path[i].weight
		}
	}
}

// ideal is a client's part of the card now.
func (f *fluid) ideal(k *Client) float64 {
	if k.partAt == f.changes {
		return k.part
	}
	v, parent := 1.0, len(f.nodes)-1
	for _, p := range k.path {
		v *= float64(p.weight) / float64(f.nodes[parent].below)
		parent = p.node
	}
	k.part, k.partAt = v, f.changes
	return v
}

// advance serves everybody until now, and compares.
func (f *fluid) advance(r *Rig, now time.Duration) {
	d := now - r.Now
	on := r.Card.Running(Graphics)
	if d <= 0 || on < 0 {
		return
	}
	served := r.lines[on].client
	for _, k := range f.clients {
		if k.flying == 0 && k != served {
			continue
		}
		st := &k.Stats
		if k.flying > 0 {
			st.Owed += time.Duration(math.Round(float64(d) * f.ideal(k)))
		}
		if k == served {
			st.Got += d
		}
		lag := (st.Owed - st.owedAt) - (st.Got - st.gotAt)
		st.Lag, st.Behind = max(st.Lag, lag.Abs()), lag
	}
}

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

// ShareError is the largest difference between what a client had of the card and
// what it was owed while it had work.
func (r *Rig) ShareError() (worst float64) {
	total := time.Duration(0)
	for _, c := range r.Clients {
		total += c.Stats.Got
	}
	for _, c := range r.Clients {
		if total > 0 {
			worst = max(worst, math.Abs(float64(c.Stats.Got-c.Stats.Owed))/float64(total))
		}
	}
	return worst
}

// Jain is Jain's index of what clients got over what they were owed: 1 is fair.
func (r *Rig) Jain() float64 {
	sum, squares, n := 0.0, 0.0, 0
	for _, c := range r.Clients {
		if c.Stats.Owed == 0 {
			continue
		}
		x := float64(c.Stats.Got) / float64(c.Stats.Owed)
		sum, squares, n = sum+x, squares+x*x, n+1
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(n) * squares)
}

// Efficiency is the part of the time in which the graphics engine worked.
func (r *Rig) Efficiency() float64 {
	if r.Now == 0 {
		return 0
	}
	return float64(r.Card.Busy(Graphics)) / float64(r.Now)
}

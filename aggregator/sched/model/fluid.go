package model

import (
	"math"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// fluid is an ideal fair card, which serves any number of clients at the same time. Level by
// level, the highest priority goes first, equals share by weight, no node gets more than its cap,
// and the others get the rest.
type fluid struct {
	nodes   []fluidNode // the first is the card; children come after their parents
	clients []*Client
	capped  []int // nodes
	stale   bool  // the set of nodes with work or at their cap has changed since the rates were computed
	total   float64
	lists   []int // of children, in use by levels of fill
}

// fluidNode is a node of the mix, as a competitor.
type fluidNode struct {
	parent   int
	weight   float64
	priority int
	children []int
	active   int     // clients with work at or below
	room     float64 // the most that it can take
	rate     float64 // part of the card that it has

	// A node saves the unused part of its cap, two credit periods' worth at most, and runs
	// without a limit until that is used.
	cap     float64 // part of the card, 0 for none
	saved   float64 // nanoseconds
	most    float64
	limited bool // nothing is saved
}

const (
	capPeriods = 2
	whole      = 1 - 1e-9 // of the card, with what sums of fractions lose
	nothing    = 1e-9
)

// reset makes the card, without clients.
func (f *fluid) reset() { f.nodes = append(f.nodes[:0], fluidNode{parent: -1, weight: 1}) }

// grow adds a node, and returns its number.
func (f *fluid) grow(parent int, c *sched.NodeConfig, period time.Duration) int {
	n := fluidNode{parent: parent, weight: float64(c.Weight), priority: c.Priority, cap: float64(c.Cap) / sched.FullCap}
	if c.Weight == 0 {
		n.weight = sched.BaseWeight
	}
	n.most = capPeriods * float64(period) * n.cap
	n.saved = n.most
	at := len(f.nodes)
	if c.Cap > 0 {
		f.capped = append(f.capped, at)
	}
	f.nodes = append(f.nodes, n)
	f.nodes[parent].children = append(f.nodes[parent].children, at)
	return at
}

// want adds n graphics requests to a client, or removes some.
func (f *fluid) want(k *Client, n int) {
	was := k.wants > 0
	k.wants += n
	is := k.wants > 0
	if is == was || k.leaf == 0 { // one that is driven by hand has no place in the mix
		return
	}
	by := -1
	if is {
		by = 1
		// Its share before now is settled: it had no work then.
		k.Stats.idealAt, k.Stats.gotAt, k.Stats.Behind = k.Stats.Ideal, k.Stats.Got, 0
	}
	f.activate(k.leaf, by)
}

// solve computes each client's rate.
func (f *fluid) solve() {
	f.stale = false
	for at := len(f.nodes) - 1; at >= 0; at-- {
		n := &f.nodes[at]
		n.rate, n.room = 0, 0
		if n.active == 0 {
			continue
		}
		n.room = 1
		if len(n.children) > 0 {
			sum := 0.0
			for _, c := range n.children {
				sum += f.nodes[c].room
			}
			n.room = min(sum, 1)
		}
		if n.limited {
			n.room = min(n.room, n.cap)
		}
	}
	f.total = f.nodes[0].room
	f.nodes[0].rate = f.total
	for at := range f.nodes {
		if f.nodes[at].rate > 0 && len(f.nodes[at].children) > 0 {
			f.fill(at)
		}
	}
}

// fill shares a node's part among its children with work.
func (f *fluid) fill(at int) {
	f.lists = f.lists[:0]
	for _, c := range f.nodes[at].children {
		if f.nodes[c].active > 0 {
			f.lists = append(f.lists, c)
		}
	}
	slices.SortStableFunc(f.lists, func(a, b int) int { return f.nodes[b].priority - f.nodes[a].priority })
	left := f.nodes[at].rate
	for rest := f.lists; len(rest) > 0; {
		same := 1
		for same < len(rest) && f.nodes[rest[same]].priority == f.nodes[rest[0]].priority {
			same++
		}
		left = f.pour(rest[:same], left)
		rest = rest[same:]
	}
}

// pour shares by weight among some nodes. A node that cannot take its part is full, and the others
// share what it leaves. pour returns what no node could take, and overwrites the list.
func (f *fluid) pour(list []int, left float64) float64 {
	for {
		weight := 0.0
		for _, c := range list {
			weight += f.nodes[c].weight
		}
		open := list[:0]
		taken := 0.0
		for _, c := range list {
			n := &f.nodes[c]
			if n.rate = left * n.weight / weight; n.rate < n.room {
				open = append(open, c)
				continue
			}
			n.rate = n.room
			taken += n.room
		}
		if len(open) == len(list) {
			return 0
		}
		if left = max(left-taken, 0); len(open) == 0 {
			return left
		}
		list = open
	}
}

// advance serves all clients until now, and compares.
func (f *fluid) advance(r *Rig, now time.Duration) {
	d := now - r.Now
	if d <= 0 {
		return
	}
	var served *Client
	if on := r.Card.Running(Graphics); on >= 0 {
		served = r.lines[on].client
	}
	f.flow(float64(d), served != nil)
	for _, k := range f.clients {
		if k.wants == 0 && k != served {
			continue
		}
		st := &k.Stats
		st.Ideal = time.Duration(math.Round(k.ideal))
		if k == served {
			st.Got += d
		}
		lag := (st.Ideal - st.idealAt) - (st.Got - st.gotAt)
		st.Lag, st.Behind = max(st.Lag, lag.Abs()), lag
	}
}

// flow advances by so many nanoseconds. While the card is idle although there is work for all of
// it, no client accrues ideal time: that costs efficiency, not shares.
func (f *fluid) flow(left float64, busy bool) {
	for left > 0 {
		if f.stale {
			f.solve()
		}
		accrues := busy || f.total < whole
		step := left
		for _, at := range f.capped {
			n := &f.nodes[at]
			if over := n.rate - n.cap; accrues && !n.limited && over > nothing {
				step = min(step, n.saved/over) // until nothing is saved
			}
		}
		for _, k := range f.clients {
			if accrues && k.wants > 0 {
				k.ideal += step * f.nodes[k.leaf].rate
			}
		}
		for _, at := range f.capped {
			n := &f.nodes[at]
			over := -n.cap
			if accrues {
				over += n.rate
			}
			if math.Abs(over) > nothing {
				n.saved = min(n.saved-step*over, n.most)
			}
			if limited := n.saved < 1; limited != n.limited {
				n.limited, f.stale = limited, true
			}
		}
		left -= step
	}
}

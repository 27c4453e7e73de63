package aggregator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// A card with card.Slices has no gate. It gets the guests' weights, and its meter tells what they used.

// errSliced refuses a scheduler.
var errSliced = errors.New("scheduler.policy: this card shares its engines by itself, in time slices by weight; leave the key out, or say off")

// setWeight sets what a guest gets of a card with time slices.
func (g *Guest) setWeight(c sched.NodeConfig) error {
	for _, k := range []struct {
		key   string
		given bool
	}{{"cap", c.Cap != 0}, {"priority", c.Priority != 0}, {"limits.request", c.Limit != 0}, {"limits.queued", c.Queued != 0}} {
		if k.given {
			return fmt.Errorf("%s: this card shares its engines by weight alone; leave the key out", k.key)
		}
	}
	c.Weight = cmp.Or(c.Weight, sched.BaseWeight)
	if err := g.agg.gpu.Slices().SetWeight(g.share, float64(c.Weight)/sched.BaseWeight); err != nil {
		return err
	}
	g.weight.Store(int64(c.Weight))
	return nil
}

// metered reports whether the ledger comes from the card's meter.
func (a *Aggregator) metered() bool { return a.gpu.Slices() != nil && a.gpu.Meter() != nil }

// leave takes a guest from the table by do. The card's account keeps its time.
func (a *Aggregator) leave(g *Guest, do func()) {
	var busy channels.Busy
	if a.metered() {
		busy = g.channels.Busy(a.gpu.Meter())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.past.Add(busy)
	do()
}

// meterLedger is the ledger of the card and of its guests. Nothing of it waits outside the card.
func (a *Aggregator) meterLedger() []sched.Entry {
	if !a.metered() {
		return nil
	}
	a.mu.Lock()
	past, guests := a.past, a.present()
	a.mu.Unlock()
	list := []sched.Entry{a.entry(past)}
	root := &list[0]
	root.Past = slices.Clone(root.Accounts)
	for _, g := range guests {
		e := a.entry(g.channels.Busy(a.gpu.Meter()))
		e.Name, e.Depth, e.Weight = g.name, 1, int(g.weight.Load())
		for i := range e.Accounts {
			root.Accounts[i].Add(&e.Accounts[i])
		}
		list = append(list, e)
	}
	return list
}

func (a *Aggregator) entry(busy channels.Busy) sched.Entry {
	n := a.gpu.Engines()
	e := sched.Entry{
		Kind: sched.Inner, Waiting: make([]int, n), Inflight: make([]int, n),
		Accounts: make([]sched.Account, n), Past: make([]sched.Account, n), Debt: make([]time.Duration, n),
	}
	for i := range e.Accounts {
		e.Accounts[i].Busy = busy[i]
	}
	return e
}

package aggregator

import (
	"fmt"
	"maps"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Grouping is which channels of a guest are one group below it.
type Grouping uint8

// The groupings.
const (
	BySpace   Grouping = iota // those of one address space: what a process has
	ByChannel                 // each is one
	ByGuest                   // all are one
	groupings
)

var groupingNames = [groupings]string{"space", "channel", "guest"}

// Groupings are their names.
func Groupings() []string { return append([]string(nil), groupingNames[:]...) }

func (b Grouping) String() string {
	if b < groupings {
		return groupingNames[b]
	}
	return fmt.Sprint(uint8(b))
}

// Processes is how what a guest gets of the card's time is shared by its processes.
// How their groups take turns is sched.NodeConfig's Policy.
type Processes struct {
	Group Grouping // for channels that are bound from then on
	// Weights are those of groups by name, as the ledger has them; others have
	// sched.BaseWeight.
	Weights map[string]int
}

// kernelGroup is what the group of a guest's kernel is called: the address space of
// the channel that is bound first while the guest has no other. A driver makes that
// for itself when it finds the card, before any process can ask it for one.
const kernelGroup = "kernel"

// groupKey names a group of a guest.
type groupKey struct {
	space   spaceKey
	channel uint8 // plus one
	all     bool
}

// keyOf says to which group a channel belongs.
func (p *Processes) keyOf(ch *channel) groupKey {
	switch p.Group {
	case ByChannel:
		return groupKey{channel: ch.gid + 1}
	case ByGuest:
		return groupKey{all: true}
	}
	return groupKey{space: ch.space.key}
}

// nameOf is what a group is called.
func (sh *share) nameOf(key groupKey) string {
	switch {
	case key.all:
		return "all"
	case key.channel != 0:
		return fmt.Sprintf("channel-%d", key.channel-1)
	case key == sh.kernel:
		return kernelGroup
	case key.space.target != shadowpt.VRAM:
		return fmt.Sprintf("space-%#x.%d", key.space.dir, key.space.target)
	}
	return fmt.Sprintf("space-%#x", key.space.dir)
}

// config is what the scheduler is told of a group.
func (sh *share) config(name string) sched.NodeConfig {
	return sched.NodeConfig{Name: name, Weight: sh.processes.Weights[name]}
}

// reweigh gives a guest's groups other weights.
func (t *gate) reweigh(now time.Duration, sh *share, p Processes) {
	sh.processes = Processes{p.Group, maps.Clone(p.Weights)}
	for _, gr := range sh.groups {
		if !gr.borrowed {
			// The scheduler knows the node, and the weight was held against its bounds.
			_ = t.s.Change(now, gr.node, sh.config(gr.name))
		}
	}
}

// check says what of it cannot be.
func (p *Processes) check() error {
	if p.Group >= groupings {
		return fmt.Errorf("aggregator: grouping %d: must be one of %v", p.Group, Groupings())
	}
	for name, w := range p.Weights {
		if w < 1 || w > sched.MaxWeight {
			return fmt.Errorf("aggregator: weight of group %s: %d: must be 1 to %d", name, w, sched.MaxWeight)
		}
	}
	return nil
}

// SetProcesses changes how a guest's processes share what it gets, under load.
func (g *Guest) SetProcesses(p Processes) error {
	t := g.agg.gate
	if t == nil {
		return ErrNoScheduler
	}
	if err := p.check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sh := t.guests[g]
	if sh == nil {
		return fmt.Errorf("%w: %s", ErrGone, g.name)
	}
	t.reweigh(t.now(), sh, p)
	t.step()
	t.look()
	return nil
}

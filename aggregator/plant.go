package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Faults that an operator plants, for tests of the guest's driver. The card does not know of them.

// Planned is what is to go wrong.
type Planned = channels.Planned

// Plan says what goes wrong with the guest's next submissions, in place of what was planned before.
func (g *Guest) Plan(p Planned) {
	g.locked(func() {
		held := g.channels.Plan(p)
		if held.Empty() {
			return
		}
		held.Each(func(id uint32) {
			g.state.Pending.Doorbells.Add(id)
			g.state.Pending.Flush.Add(id)
		})
		g.flushDeferred()
	})
}

// Plant implements channels.Guest: the channel ends as at an address without a page. The fault comes from a goroutine of its own,
// as those of the card do.
func (r roomGuest) Plant(ch *channels.Channel) {
	go func() {
		ch.Fault(card.Fault{Kind: card.Translation, Engine: card.Graphics, VA: ch.RingAddress(), Reason: shadowpt.PageNotPresent})
		r.locked(func() {
			if r.channels.Ready(ch.ID) == ch { // else its guest ends it
				r.state.Pending.Preempt.Add(ch.ID)
				r.wake.Broadcast()
			}
		})
		r.agg.gate.Aborted(ch)
	}()
}

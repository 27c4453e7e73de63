package channels

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Face reads what the guest's driver says about its channels, in the structures of the chip that the
// guest sees.
type Face interface {
	// Describe describes channel id for the card. ok is false if the guest may not have it; the face has
	// counted the rule. It is called by the worker, without the guest's lock.
	Describe(id uint32) (d Description, ok bool)
}

// Description is what a card needs to know of a channel. Addresses in it are the guest's.
type Description struct {
	// Space is the guest's tables, of which the channel uses a shadow.
	Space shadowpt.Space

	Engine   card.Engine // see card.ChannelConfig
	Ring     card.Ring
	State    card.State // the Token is what Save was given, or made up by the guest
	Progress card.Progress
	Put      uint32
	// Privileged channels reach pages that are only for drivers.
	Privileged bool

	Place      uint64 // names the guest's structures of the channel for the face
	Structures Structures
}

// Structures are the guest's memory of one channel, at the places where they were when it was opened.
type Structures interface {
	// Put returns the guest's GP_PUT at once. With settled it waits while pages move, as only the
	// worker may.
	Put(settled bool) (put uint32, ok bool)
	// Show writes what the channel reports to the guest, and Save the state of a channel that is off
	// the card.
	Show(card.Progress)
	Save(card.State)
}

// Open creates a channel of the card for the guest's channel id. It returns nil and counts the rule if
// the guest may not have it. It belongs to the worker, which calls it without the guest's lock.
func (c *Channels) Open(id uint32) *Channel {
	d, ok := c.cfg.Face.Describe(id)
	if !ok {
		return nil
	}
	ch := &Channel{ID: id, Place: d.Place, of: c, key: shadow.Key{Dir: d.Space.Dir, Target: d.Space.Target}, structures: d.Structures, seen: seenOf(&d)}
	cfg := card.ChannelConfig{
		Limit: d.Space.Limit, Engine: d.Engine, Ring: d.Ring, State: d.State,
		Progress: d.Progress, Put: c.cfg.Gate.First(d.Put, d.State.GPGet), Privileged: d.Privileged,
	}
	ok = c.withinQuota()
	if ok {
		if ch.space = c.cfg.Shadows.Enter(d.Space); ch.space != nil {
			cfg.Space = ch.space.Card()
		} else {
			ok = false
		}
	}
	if !ok {
		c.stats.OverQuota.Add(1)
		return nil
	}
	ch.state.LastPut, ch.state.RoundPut = d.Put, d.Put
	// The guest's structures hold the token, too: those that were rewritten are a new channel's,
	// and a token that the guest made up names nothing.
	saved := c.Saved[id]
	cfg.Prefer = saved.Number
	if saved.Token != d.State.Token {
		cfg.State.Token = 0
	}
	c.guest.MemoryBarrier() // what was written before that GP_PUT was
	if c.create(ch, cfg) {
		c.stats.Binds.Add(1)
		return ch
	}
	c.stats.OverQuota.Add(1)
	if ch.space != nil {
		c.cfg.Shadows.Leave(ch.space)
	}
	return nil
}

// create creates the card's channel, and adds it to the gate.
func (c *Channels) create(ch *Channel, cfg card.ChannelConfig) bool {
	var err error
	if ch.card, err = c.cfg.Share.NewChannel(cfg, ch); err != nil {
		return false
	}
	c.setLive(ch, true)
	c.cfg.Mem.Settle() // whoever moves pages now does not know the channel
	if c.cfg.Gate.Add(ch, cfg.Ring, cfg.State.GPGet) == nil {
		return true
	}
	ch.card.Stop(false)
	ch.card.Unbind()
	ch.card.Free()
	c.setLive(ch, false)
	return false
}

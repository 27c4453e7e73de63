package fifo

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Open creates a channel of the card for the guest's instance block at inst. It returns nil
// and counts the rule if the guest may not have it. It belongs to the worker, which calls it without
// the guest's lock.
func (f *FIFO) Open(id uint8, inst uint64) *Channel {
	block := make([]byte, gf100.InstanceSize)
	if !f.cfg.Mem.Read(shadowpt.VRAM, inst, block) {
		f.stats.BadInstance.Add(1)
		return nil
	}
	in := structs.ReadInstance(block)
	ch := &Channel{ID: id, Inst: inst, fifo: f, userd: in.USERD}
	progress, put, ok := ch.readUSERD()
	if !ok || in.USERDTarget != shadowpt.VRAM {
		f.stats.BadUSERD.Add(1)
		return nil
	}
	if f.withinQuota() {
		ch.space = f.cfg.Shadows.Enter(in.Space)
	}
	if ch.space == nil {
		f.stats.OverQuota.Add(1)
		return nil
	}
	ch.state.LastPut, ch.state.RoundPut = put, put
	cfg := card.ChannelConfig{
		Dir: ch.space.Dir(), Limit: in.Space.Limit, Ring: in.Ring, State: in.State,
		Progress: progress, Put: f.cfg.Gate.First(put, in.State.GPGet),
	}
	// The guest's block holds the token, too: a block that was rewritten is a new channel,
	// and a token that the guest made up names nothing.
	saved := f.Saved[id]
	cfg.Prefer = saved.Number
	if saved.Token != in.State.Token {
		cfg.State.Token = 0
	}
	f.guest.MemoryBarrier() // what was written before that GP_PUT was
	if f.create(ch, cfg) {
		f.stats.Binds.Add(1)
		return ch
	}
	f.stats.OverQuota.Add(1)
	f.cfg.Shadows.Leave(ch.space)
	return nil
}

// create creates the card's channel, and adds it to the gate.
func (f *FIFO) create(ch *Channel, cfg card.ChannelConfig) bool {
	var err error
	if ch.card, err = f.cfg.Share.NewChannel(cfg, ch); err != nil {
		return false
	}
	f.setLive(ch, true)
	f.cfg.Mem.Settle() // whoever moves pages now does not know the channel
	if f.cfg.Gate.Add(ch, cfg.Ring, cfg.State.GPGet) == nil {
		return true
	}
	ch.card.Stop(false)
	ch.card.Unbind()
	ch.card.Free()
	f.setLive(ch, false)
	return false
}

package aggregator

import (
	"encoding/binary"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channel"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// boundChannel is a guest's channel that a channel of the card executes.
type boundChannel struct {
	guest *Guest
	gid   uint8        // the guest's number
	hw    card.Channel // the card's
	inst  uint64       // the guest's instance block, in its VRAM
	userd uint64       // the guest's USERD, in its VRAM
	space *space

	// Guarded by Guest.mu.
	stopped  bool             // by the aggregator: faulted or held
	held     bool             // until the guest's driver has handled its error
	retry    bool             // retry the method at which it was held
	failed   gf100.PBDMAError // the error at which it was held
	lastPut  uint32           // the guest's GP_PUT as of its last doorbell; aliases may not be flushed yet
	putSeq   uint64           // counts changes of lastPut: GP_PUT wraps around
	roundPut uint32           // lastPut when the round began; its end submits up to here

	// saved says that the channel's state was written to the guest's structures and that it
	// has not run since.
	saved bool
}

// open creates a channel of the card for the guest's instance block at inst. It returns nil
// and counts the rule if the guest may not have it.
func (g *Guest) open(gid uint8, inst uint64) *boundChannel {
	block := make([]byte, gf100.InstanceSize)
	if !g.read(shadowpt.VRAM, inst, block) {
		g.stats.BadInstance.Add(1)
		return nil
	}
	in := channel.ReadInstance(block)
	if _, ok := g.extents.Translate(in.USERD, gf100.USERDSize); !ok || in.USERDTarget != shadowpt.VRAM {
		g.stats.BadUSERD.Add(1)
		return nil
	}
	ch := &boundChannel{guest: g, gid: gid, inst: inst, userd: in.USERD}
	if !g.withinQuota() {
		g.stats.OverQuota.Add(1)
		return nil
	}
	if ch.space = g.enter(in.Space); ch.space == nil {
		g.stats.OverQuota.Add(1)
		return nil
	}
	cfg := card.ChannelConfig{Dir: ch.space.shadow.Dir(), Limit: in.Space.Limit, Ring: in.Ring, State: in.State}
	// The guest's block holds the token, too: a block that was rewritten is a new channel,
	// and a token that the guest made up names nothing.
	kept := g.savedStates[gid]
	cfg.Prefer = kept.number
	if kept.token != in.State.Token {
		cfg.State.Token = 0
	}
	cfg.Progress, ch.lastPut = g.readUSERD(ch)
	ch.roundPut = ch.lastPut
	g.flushAliases() // what was written before that GP_PUT was
	cfg.Put = ch.lastPut
	if g.agg.gate != nil {
		cfg.Put = in.State.GPGet // the gate forwards the rest
	}
	var err error
	if ch.hw, err = g.share.NewChannel(cfg, ch); err == nil {
		g.setLive(ch, true)
		g.moving.RLock() // whoever moves pages now does not know the channel
		//lint:ignore SA2001 taking the lock is the wait
		g.moving.RUnlock()
		if err = g.agg.gate.Add(ch, in.Ring, in.State.GPGet); err == nil {
			g.stats.Binds.Add(1)
			return ch
		}
		ch.hw.Stop(false)
		ch.hw.Unbind()
		ch.hw.Free()
		g.setLive(ch, false)
	}
	g.stats.OverQuota.Add(1)
	g.leave(ch.space)
	return nil
}

// savedState names the state that the card keeps of an unbound channel. A driver that binds the
// same instance block again continues with that state.
type savedState struct {
	number uint8 // the card's channel, which is to be the same
	token  uint64
}

// setLive records a channel from its creation on the card until its memory is freed.
func (g *Guest) setLive(ch *boundChannel, on bool) {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	if on {
		g.live[ch] = true
	} else {
		delete(g.live, ch)
	}
}

func (g *Guest) withinQuota() bool {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	return len(g.live) < g.limits.Channels
}

// close ends a channel of the card and frees its resources when it has left the card. If it
// does not leave, the channel is stuck and the guest quarantined.
func (g *Guest) close(ch *boundChannel) {
	ch.hw.Disable()
	if !g.leaveCard(ch) {
		g.stuckChannels = append(g.stuckChannels, ch)
		g.agg.gate.GiveUp(ch)
		g.Quarantine("a channel does not leave the card")
		return
	}
	g.finishClose(ch)
}

// leaveCard waits, with a bound, until a disabled channel is on no PBDMA.
func (g *Guest) leaveCard(ch *boundChannel) bool {
	if g.cardTimedOut || g.quarantined.Load() && ch.hw.Running() { // waited for already
		left, _ := ch.hw.Stop(false)
		return left
	}
	g.inlineCredits = maxInlineCredits
	left, inTime := ch.hw.Stop(true)
	if !inTime {
		g.noteCardTimeout()
	}
	return left
}

// finishClose frees the resources of a channel that is on no PBDMA. What the card reported of
// it is delivered to its guest first: a later owner of the same instance block and number must
// not get it.
func (g *Guest) finishClose(ch *boundChannel) {
	g.agg.gpu.Poll()
	if !ch.saved {
		g.saveBack(ch)
	}
	g.agg.gate.Remove(ch)
	ch.hw.Unbind()
	k := savedState{number: ch.hw.ID(), token: ch.hw.State().Token}
	g.mu.Lock()
	g.leaving = nil // its number may be reused soon
	g.savedStates[ch.gid] = k
	g.mu.Unlock()
	if !g.leave(ch.space) {
		g.waiting = append(g.waiting, ch) // until an invalidate completes
		return
	}
	g.release(ch)
}

// release frees the memory and the number of a channel that the card does not use.
func (g *Guest) release(ch *boundChannel) {
	ch.hw.Free()
	g.setLive(ch, false)
	g.stats.Unbinds.Add(1)
}

// reap checks the stuck channels again.
func (g *Guest) reap() {
	left := g.stuckChannels[:0]
	for _, ch := range g.stuckChannels {
		if ch.hw.Running() {
			left = append(left, ch)
			continue
		}
		g.finishClose(ch)
	}
	g.stuckChannels = left
	if len(g.waiting) > 0 {
		g.invalidateCard()
	}
}

// saveBack writes the state of a channel that has left the card to the guest's structures.
// It must precede the moment when the guest can see that the channel is off: after that the
// guest may reuse the memory.
func (g *Guest) saveBack(ch *boundChannel) {
	for _, w := range channel.SavedWords(ch.hw.State()) {
		g.eachRun(ch.inst+w.Offset, binary.LittleEndian.AppendUint32(nil, w.Value), true)
	}
	g.showUSERD(ch)
}

// userd is a buffer for the part of USERD that has fields.
type userd [gf100.USERDGPPut + 4]byte

// showUSERD copies what the card wrote to a channel's USERD to the guest's. It writes only
// changes, because each write makes the card check every waiting semaphore.
func (g *Guest) showUSERD(ch *boundChannel) {
	at, ok := g.extents.Translate(ch.userd, gf100.USERDSize)
	if !ok {
		return
	}
	g.moving.RLock() // a write to a page that moves would be lost
	defer g.moving.RUnlock()
	b := g.agg.userds.Get().(*userd)
	defer g.agg.userds.Put(b)
	g.agg.gpu.ReadVRAM(at, b[:])
	wrote := false
	for _, w := range channel.ProgressWords(ch.hw.Progress()) {
		if p := b[w.Offset : w.Offset+4]; binary.LittleEndian.Uint32(p) != w.Value {
			binary.LittleEndian.PutUint32(p, w.Value)
			g.agg.gpu.WriteVRAM(at+w.Offset, p)
			wrote = true
		}
	}
	if wrote {
		g.tracker.Wrote(ch.userd, gf100.USERDSize)
	}
}

// readUSERD reads the guest's USERD before the channel is bound.
func (g *Guest) readUSERD(ch *boundChannel) (card.Progress, uint32) {
	var b userd
	at, _ := g.extents.Translate(ch.userd, gf100.USERDSize)
	g.moving.RLock()
	g.agg.gpu.ReadVRAM(at, b[:])
	g.moving.RUnlock()
	return channel.ReadUSERD(b[:])
}

// Completed implements card.ChannelEvents. The driver of the guest then looks at its fences.
func (ch *boundChannel) Completed(engines uint32) {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if engines&^g.events.engines != 0 {
		g.stats.EngineEvents.Add(1)
	}
	g.events.engines |= engines
	g.eventsReady.Signal()
}

// MMUFault implements card.ChannelEvents.
func (ch *boundChannel) MMUFault(f gf100.MMUFault) {
	ch.guest.stats.MMUFaults.Add(1)
	f.Inst = ch.inst
	ch.fail(channelError{kind: mmuFault, fault: f})
}

// PBDMAError implements card.ChannelEvents.
func (ch *boundChannel) PBDMAError(e gf100.PBDMAError) {
	ch.guest.stats.PBDMAErrors.Add(1)
	e.Channel = ch.gid
	ch.fail(channelError{kind: pbdmaError, pbdma: e})
}

// GraphTrap implements card.ChannelEvents.
func (ch *boundChannel) GraphTrap(t gf100.GraphTrap) {
	ch.guest.stats.EngineErrors.Add(1)
	t.Inst = ch.inst
	ch.fail(channelError{kind: graphTrap, graph: t})
}

// CopyTrap implements card.ChannelEvents.
func (ch *boundChannel) CopyTrap(t gf100.CopyTrap) {
	ch.guest.stats.EngineErrors.Add(1)
	t.Inst = ch.inst
	ch.fail(channelError{kind: copyTrap, copy: t})
}

// fail records an error at which the card stopped the channel and reports it to the guest,
// unless the guest has unbound the channel.
func (ch *boundChannel) fail(e channelError) {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels[ch.gid].ch != ch {
		return
	}
	ch.hw.Disable() // the guest may have enabled it meanwhile
	ch.stop(e)
	g.errorBudget.spend(time.Now(), g.agg.opts.ErrorRate, 1)
	if g.errorBudget.level > g.agg.opts.ErrorBurst {
		g.quarantineLocked("it stops the card's engines too often")
	}
}

// stop records a channel's error. The channel stays off the card until the driver has
// handled the error or, after an MMU fault, binds it again. Guest.mu is held.
func (ch *boundChannel) stop(e channelError) {
	e.id = ch.gid
	ch.stopped, ch.held, ch.retry = true, e.kind != mmuFault, false
	ch.failed = e.pbdma
	if ch.ended() {
		ch.guest.agg.gate.GiveUp(ch)
	}
	ch.guest.events.fail(e)
	ch.guest.eventsReady.Signal()
}

// ended reports whether the channel stopped for good. Guest.mu is held.
func (ch *boundChannel) ended() bool { return ch.stopped && !ch.held }

// Resume implements gate.Channel: it lets the channel continue the entry in which it was
// unbound.
func (ch *boundChannel) Resume() {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := &g.channels[ch.gid]; c.ch == ch && c.enabled && !g.rebinding(ch.gid) {
		g.resumeChannel(ch)
	}
}

// Abort implements gate.Channel: it ends a channel whose request does not end on an engine.
func (ch *boundChannel) Abort(engine int) {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels[ch.gid].ch != ch || g.rebinding(ch.gid) {
		return // its guest ends it
	}
	g.stats.Runaways.Add(1)
	ch.hw.Disable()
	if !ch.stopped || ch.held {
		f := gf100.EngineClients[engine].Fault(ch.inst, 0, false, uint8(shadowpt.PageNotPresent))
		ch.stop(channelError{kind: mmuFault, fault: f})
	}
	g.pending.preempt.add(ch.gid)
	g.wake.Broadcast()
	g.agg.gate.Aborted(ch)
}

// Card implements gate.Channel.
func (ch *boundChannel) Card() card.Channel { return ch.hw }

// Number implements gate.Channel.
func (ch *boundChannel) Number() uint8 { return ch.gid }

// Space implements gate.Channel.
func (ch *boundChannel) Space() (dir uint64, target shadowpt.Target) {
	return ch.space.key.dir, ch.space.key.target
}

// Guest implements gate.Channel.
func (ch *boundChannel) Guest() gate.Guest { return ch.guest }

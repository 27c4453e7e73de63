package aggregator

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// channel is a channel of the card that executes a guest's channel.
type channel struct {
	guest *Guest
	id    uint8 // the card's number
	gid   uint8 // the guest's number

	inst      uint64 // instance block on the card, the aggregator's
	guestInst uint64 // the guest's, in its VRAM
	userd     uint64 // the guest's USERD, in its VRAM
	space     *space

	// Guarded by Aggregator.mu.
	listed bool

	// Guarded by Guest.mu.
	stopped    bool             // by the aggregator: faulted or held
	held       bool             // until the guest's driver has handled its error
	retry      bool             // retry the method at which it was held
	failed     gf100.PBDMAError // the error at which it was held
	mayHaveRun bool             // since engine events were last routed
	active     bool             // it may run, and was not seen quiet since
	lastPut    uint32           // the guest's GP_PUT as of its last doorbell; aliases may not be flushed yet
	putSeq     uint64           // counts changes of lastPut: GP_PUT wraps around
	roundPut   uint32           // lastPut when the round began; its end submits up to here

	sent atomic.Bool // forwarded by the gate since engine events were last routed

	// saved means that the channel's state was written to the guest's structures and that
	// it has not run since.
	saved bool
}

// A rule defines the value of a field of the card's instance block.
type rule uint8

const (
	copied     rule = iota // the guest's value
	translated             // computed from the guest's value below
	forced                 // the value given here
	refused                // zero
)

// instanceFields defines how the card's instance block is made from the guest's. It lists
// every field that package gf100 knows; all other bits are zero.
var instanceFields = []struct {
	gf100.Word
	rule
	value uint32 // of a forced field
}{
	{gf100.InstGPPut, refused, 0}, // the card reads GP_PUT from USERD
	{gf100.InstUSERDLo, translated, 0},
	{gf100.InstUSERDHi, translated, 0},
	{gf100.InstUSERDTarget, forced, 0}, // VRAM
	{gf100.InstSignature, forced, gf100.InstanceSignature},
	{gf100.InstGPGet, copied, 0},
	{gf100.InstPBGetLo, refused, 0}, // a channel begins at a GPFIFO entry
	{gf100.InstPBGetHi, refused, 0},
	{gf100.InstRef, copied, 0},
	{gf100.InstGPBaseLo, copied, 0}, // a virtual address; the shadow bounds it
	{gf100.InstGPBaseHi, copied, 0},
	{gf100.InstGPLimit2, copied, 0},
	{gf100.InstPDBTarget, forced, 0}, // the shadow lies in VRAM
	{gf100.InstPDBLo, translated, 0},
	{gf100.InstPDBHi, translated, 0},
	{gf100.InstLimitLo, copied, 0},
	{gf100.InstLimitHi, copied, 0},
	// The card keeps engine contexts of its own.
	{gf100.InstGRContextLo, refused, 0},
	{gf100.InstGRContextHi, refused, 0},
	// The token of the card's saved state of the channel; see Guest.saved. A forged token
	// names no state.
	{gf100.InstTokenLo, translated, 0},
	{gf100.InstTokenHi, translated, 0},
	{gf100.InstOwner, translated, 0}, // the guest's number in the card's accounts
	{gf100.InstKeep, translated, 0},  // how many states the card may keep for the guest
}

// instanceValues are the translated fields.
type instanceValues struct {
	userd, dir, token uint64
	owner, states     uint32
}

// buildInstance makes the card's instance block.
func buildInstance(guest []byte, v instanceValues) []byte {
	block := make([]byte, gf100.InstanceSize)
	for _, f := range instanceFields {
		switch f.rule {
		case copied:
			f.Put(block, f.Get(guest))
		case forced:
			f.Put(block, f.value)
		}
	}
	gf100.InstUSERDLo.Put(block, uint32(v.userd>>12))
	gf100.InstUSERDHi.Put(block, uint32(v.userd>>32))
	gf100.InstPDBLo.Put(block, uint32(v.dir>>12))
	gf100.InstPDBHi.Put(block, uint32(v.dir>>32))
	gf100.InstTokenLo.Put(block, uint32(v.token))
	gf100.InstTokenHi.Put(block, uint32(v.token>>32))
	gf100.InstOwner.Put(block, v.owner)
	gf100.InstKeep.Put(block, v.states)
	return block
}

// cardUSERD returns the address of the channel's USERD on the card.
func (ch *channel) cardUSERD() uint64 {
	return ch.guest.agg.pollArea + uint64(ch.id)*gf100.USERDSize
}

// open creates a channel of the card for the guest's instance block at inst. It returns nil
// and counts the rule if the guest may not have it.
func (g *Guest) open(gid uint8, inst uint64) *channel {
	block := make([]byte, gf100.InstanceSize)
	if !g.read(shadowpt.VRAM, inst, block) {
		g.stats.BadInstance.Add(1)
		return nil
	}
	userd, target := gf100.InstanceUSERD(block)
	if _, ok := g.extents.Translate(userd, gf100.USERDSize); !ok || shadowpt.Target(target) != shadowpt.VRAM {
		g.stats.BadUSERD.Add(1)
		return nil
	}
	ch := &channel{active: true, mayHaveRun: true, guest: g, gid: gid, guestInst: inst, userd: userd}
	if !g.withinQuota() {
		g.stats.OverQuota.Add(1)
		return nil
	}
	var ok bool
	if ch.inst, ok = g.allocPrivate(gf100.InstanceSize); !ok {
		g.stats.OverQuota.Add(1)
		return nil
	}
	saved := g.saved[gid]
	if ch.space = g.enter(instanceSpace(block)); ch.space == nil || !g.agg.takeChannel(ch, saved.id) {
		g.stats.OverQuota.Add(1)
		if ch.space != nil {
			g.leave(ch.space)
		}
		g.freeInstance(ch.inst)
		return nil
	}
	v := instanceValues{
		userd: ch.cardUSERD(), dir: ch.space.shadow.Dir(), owner: uint32(g.index), states: uint32(g.limits.Channels),
	}
	if saved.token == instanceToken(block) {
		v.token = saved.token
	}
	g.loadUSERD(ch)
	g.flushAliases() // what was written before that GP_PUT was
	g.agg.ctl.card.WriteVRAM(ch.inst, buildInstance(block, v))
	g.agg.ctl.bind(ch.id, ch.inst)
	if !g.enterGate(ch, block) {
		g.stats.OverQuota.Add(1)
		g.agg.ctl.unbind(ch.id)
		g.leave(ch.space)
		g.freeInstance(ch.inst)
		g.agg.returnChannel(ch)
		return nil
	}
	g.stats.Binds.Add(1)
	return ch
}

// enterGate adds a channel to the scheduler, if there is one, with all that its guest has
// submitted. It reports whether the guest may have the channel.
func (g *Guest) enterGate(ch *channel, block []byte) bool {
	t := g.agg.gate
	if t == nil {
		return true
	}
	// The channel is not enabled yet, so the card has not read this.
	g.agg.ctl.writeVRAM(ch.cardUSERD()+gf100.USERDGPPut, gf100.InstGPGet.Get(block))
	return t.add(ch, block) == nil
}

// savedState names the state that the card keeps of an unbound channel. A driver that binds the
// same instance block again continues with that state. The guest's block holds the token,
// too: a block that was rewritten is a new channel.
type savedState struct {
	id    uint8 // the card's channel, which is to be the same
	token uint64
}

// recordState records the token of the state that the card keeps.
func (g *Guest) recordState(ch *channel) {
	block := make([]byte, gf100.InstanceSize)
	g.agg.ctl.card.ReadVRAM(ch.inst, block)
	k := savedState{id: ch.id, token: instanceToken(block)}
	g.mu.Lock()
	g.saved[ch.gid] = k
	g.mu.Unlock()
}

// instanceToken reads the token of the card's saved state from an instance block.
func instanceToken(inst []byte) uint64 {
	return uint64(gf100.InstTokenHi.Get(inst))<<32 | uint64(gf100.InstTokenLo.Get(inst))
}

// instanceSpace reads the address space from an instance block.
func instanceSpace(inst []byte) shadowpt.Space {
	dir, target, limit := gf100.InstanceSpace(inst)
	return shadowpt.Space{Dir: dir, Target: shadowpt.Target(target), Limit: limit}
}

func (g *Guest) withinQuota() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.stuckChannels) + len(g.waiting)
	for i := range g.channels {
		if g.channels[i].ch != nil {
			n++
		}
	}
	return n < g.limits.Channels
}

// close ends a channel of the card and frees its resources when it has left the card. If it
// does not leave, the channel is stuck and the guest quarantined.
func (g *Guest) close(ch *channel) {
	a := g.agg
	a.ctl.disable(ch.id)
	a.mu.Lock()
	wasListed := ch.listed
	ch.listed = false
	a.mu.Unlock()
	if !g.leaveCard(ch, wasListed) {
		g.stuckChannels = append(g.stuckChannels, ch)
		if a.gate != nil {
			a.gate.giveUp(ch)
		}
		g.quarantine("a channel does not leave the card")
		return
	}
	g.finishClose(ch)
}

// leaveCard waits, with a bound, until a disabled channel is on no PBDMA. It does not wait
// for stuck channels of other guests.
func (g *Guest) leaveCard(ch *channel, listed bool) bool {
	c := &g.agg.ctl
	if (g.quarantined.Load() || g.cardTimedOut) && c.running(ch.id) { // waited for already
		return false
	}
	if g.cardTimedOut {
		return true // disabled and off the card; the next runlist omits it
	}
	g.inlineCredits = maxInlineCredits
	ok := !listed || c.commitRunlist(g.agg.listed)
	ok = c.preempt(ch.id) && ok
	if !ok {
		g.noteCardTimeout()
	}
	return ok || !c.running(ch.id)
}

// finishClose frees the resources of a channel that is on no PBDMA. Its pending reports are
// routed to its guest before that: a later owner of the same instance block and number must not
// get them.
func (g *Guest) finishClose(ch *channel) {
	a := g.agg
	if !ch.saved {
		g.saveBack(ch)
	}
	if a.gate != nil {
		a.gate.remove(ch)
	}
	a.ctl.unbind(ch.id)
	g.mu.Lock()
	g.leaving = nil // its number may be reused soon
	g.mu.Unlock()
	a.routeAll()
	g.recordState(ch)
	if !g.leave(ch.space) {
		g.waiting = append(g.waiting, ch) // until an invalidate completes
		return
	}
	g.release(ch)
}

// release frees the instance block and number of a channel that the card does not use.
func (g *Guest) release(ch *channel) {
	g.freeInstance(ch.inst)
	g.agg.returnChannel(ch)
	g.stats.Unbinds.Add(1)
}

// reap checks the stuck channels again.
func (g *Guest) reap() {
	left := g.stuckChannels[:0]
	for _, ch := range g.stuckChannels {
		if g.agg.ctl.running(ch.id) {
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
func (g *Guest) saveBack(ch *channel) {
	ours := make([]byte, gf100.InstanceSize)
	if !g.agg.ctl.card.ReadVRAM(ch.inst, ours) {
		return
	}
	for _, w := range []gf100.Word{gf100.InstGPGet, gf100.InstRef, gf100.InstTokenLo, gf100.InstTokenHi} {
		g.eachRun(ch.guestInst+uint64(w.Offset), ours[w.Offset:w.Offset+4], true)
	}
	g.showUSERD(ch)
}

// userdShown are the fields of USERD that the card writes and the guest reads.
var userdShown = [...]uint64{
	gf100.USERDGet, gf100.USERDRef, gf100.USERDTopLevelGet, gf100.USERDTopLevelGetHi, gf100.USERDGetHi, gf100.USERDGPGet,
}

// showUSERD copies what the card wrote to a channel's USERD to the guest's.
func (g *Guest) showUSERD(ch *channel) {
	g.moving.RLock()
	defer g.moving.RUnlock()
	g.copyUSERD(ch)
}

// copyUSERD is showUSERD with Guest.moving held: a write to a page that moves would be lost.
// It writes only changes, because each write makes the card check every waiting semaphore.
func (g *Guest) copyUSERD(ch *channel) {
	at, ok := g.extents.Translate(ch.userd, gf100.USERDSize)
	if !ok {
		return
	}
	c := &g.agg.ctl
	wrote := false
	for _, off := range userdShown {
		if v := c.readVRAM(ch.cardUSERD() + off); v != c.readVRAM(at+off) {
			c.writeVRAM(at+off, v)
			wrote = true
		}
	}
	if wrote {
		g.tracker.Wrote(ch.userd, gf100.USERDSize)
	}
}

// loadUSERD fills the card's USERD from the guest's before the channel is bound: only the
// fields that are forwarded or shown. It writes the whole page, because the number may have been
// another guest's. It waits while pages move, because the mover knows only the channels that
// existed before, see [Aggregator.numbers].
func (g *Guest) loadUSERD(ch *channel) {
	c := g.agg.ctl.card
	page := make([]byte, gf100.USERDSize)
	at, _ := g.extents.Translate(ch.userd, gf100.USERDSize)
	g.moving.RLock()
	for _, off := range append(userdShown[:], gf100.USERDGPPut) {
		c.ReadVRAM(at+off, page[off:off+4])
	}
	g.moving.RUnlock()
	ch.lastPut = binary.LittleEndian.Uint32(page[gf100.USERDGPPut:])
	ch.roundPut = ch.lastPut
	c.WriteVRAM(ch.cardUSERD(), page)
}

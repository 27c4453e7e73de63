package aggregator

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// channel is a channel of the card that stands behind a guest's.
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
	stopped    bool             // by us: faulted or held
	held       bool             // until the guest's driver has dealt with its error
	retry      bool             // the method that it was held at is to be tried again
	failed     gf100.PBDMAError // that it was held at
	mayHaveRun bool             // it may have run since engine events were last routed
	active     bool             // it may run, and has not been seen quiet since
	lastPut    uint32           // the guest's GP_PUT as of its last bell; what it names may not be gathered yet
	putSeq     uint64           // how often it was heard: GP_PUT comes round
	roundPut   uint32           // the same of the bell in doing: what a round gathers for, and submits at its end

	sent atomic.Bool // by the gate, since engine events were last routed

	// saved says that the guest's structures have what the card left of the
	// channel, and that it has not run since.
	saved bool
}

// A rule says where a field of the card's instance block comes from.
type rule uint8

const (
	copied     rule = iota // the guest's value
	translated             // from the guest's value, by code below
	forced                 // ours
	refused                // zero, whatever the guest says
)

// instanceFields is how the card's instance block is made from the guest's. It
// lists every field that package gf100 knows; all other bits are zero.
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
	{gf100.InstGPBaseLo, copied, 0}, // a virtual address: the shadow bounds it
	{gf100.InstGPBaseHi, copied, 0},
	{gf100.InstGPLimit2, copied, 0},
	{gf100.InstPDBTarget, forced, 0}, // the shadow lies in VRAM
	{gf100.InstPDBLo, translated, 0},
	{gf100.InstPDBHi, translated, 0},
	{gf100.InstLimitLo, copied, 0},
	{gf100.InstLimitHi, copied, 0},
	// Engine contexts of the guest's are the guest's: the card keeps its own.
	{gf100.InstGRContextLo, refused, 0},
	{gf100.InstGRContextHi, refused, 0},
	// The card's name for what it kept of the channel: ours to remember, see
	// Guest.kept. One that a guest made up names nothing.
	{gf100.InstTokenLo, translated, 0},
	{gf100.InstTokenHi, translated, 0},
	{gf100.InstOwner, translated, 0}, // the guest, for the card's accounts
	{gf100.InstKeep, translated, 0},  // a state for each channel that the guest may have
}

// instanceValues are the translated fields.
type instanceValues struct {
	userd, dir, token uint64
	owner, keep       uint32
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
	gf100.InstKeep.Put(block, v.keep)
	return block
}

// cardUSERD returns the address of the channel's USERD on the card.
func (ch *channel) cardUSERD() uint64 {
	return ch.guest.agg.pollArea + uint64(ch.id)*gf100.USERDSize
}

// open makes a channel of the card for the guest's instance block at inst. It
// returns nil, counted, if the guest may not have it.
func (g *Guest) open(gid uint8, inst uint64) *channel {
	block := make([]byte, gf100.InstanceSize)
	if !g.read(shadowpt.VRAM, inst, block) {
		g.stats.BadInstance.Add(1)
		return nil
	}
	userd, target := gf100.InstanceUSERD(block)
	if _, ok := g.extents.translate(userd, gf100.USERDSize); !ok || shadowpt.Target(target) != shadowpt.VRAM {
		g.stats.BadUSERD.Add(1)
		return nil
	}
	ch := &channel{active: true, mayHaveRun: true, guest: g, gid: gid, guestInst: inst, userd: userd}
	if !g.withinQuota() {
		g.stats.OverQuota.Add(1)
		return nil
	}
	var ok bool
	if ch.inst, ok = g.allocOwn(gf100.InstanceSize); !ok {
		g.stats.OverQuota.Add(1)
		return nil
	}
	kept := g.kept[gid]
	if ch.space = g.enter(instanceSpace(block)); ch.space == nil || !g.agg.takeChannel(ch, kept.id) {
		g.stats.OverQuota.Add(1)
		if ch.space != nil {
			g.leave(ch.space)
		}
		g.freeInstance(ch.inst)
		return nil
	}
	v := instanceValues{
		userd: ch.cardUSERD(), dir: ch.space.shadow.Dir(), owner: uint32(g.index), keep: uint32(g.limits.Channels),
	}
	if kept.inst == inst && kept.token == instanceToken(block) {
		v.token = kept.token
	}
	g.loadUSERD(ch)
	g.gather() // what was written before that GP_PUT was
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

// enterGate gives a channel its place in the scheduler, if there is one, and has it
// wait for its turn with all that its guest has submitted. It reports whether the
// guest may have the channel.
func (g *Guest) enterGate(ch *channel, block []byte) bool {
	t := g.agg.gate
	if t == nil {
		return true
	}
	// The card has not looked at it yet: the channel is not enabled.
	g.agg.ctl.writeVRAM(ch.cardUSERD()+gf100.USERDGPPut, gf100.InstGPGet.Get(block))
	return t.add(ch, block) == nil
}

// kept names what the card keeps of a guest's channel that is not bound, so that
// a driver that binds the same instance block again finds the channel as it was. The
// guest's block has the name too, so that one that was written anew, for another
// channel, is a new channel.
type kept struct {
	inst  uint64 // the guest's instance block
	id    uint8  // the card's channel, which is to be the same
	token uint64
}

// keep remembers the name of what the card keeps.
func (g *Guest) keep(ch *channel) {
	block := make([]byte, gf100.InstanceSize)
	g.agg.ctl.card.ReadVRAM(ch.inst, block)
	k := kept{inst: ch.guestInst, id: ch.id, token: instanceToken(block)}
	g.mu.Lock()
	g.kept[ch.gid] = k
	g.mu.Unlock()
}

// instanceToken reads the card's name for a channel out of an instance block.
func instanceToken(inst []byte) uint64 {
	return uint64(gf100.InstTokenHi.Get(inst))<<32 | uint64(gf100.InstTokenLo.Get(inst))
}

// instanceSpace reads the address space out of an instance block.
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

// close ends a channel of the card. What it had is given back when the card has
// let go of it; until then it is in limbo, and the guest in safe mode.
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
		g.quarantine("the card does not give a channel back")
		return
	}
	g.finishClose(ch)
}

// leaveCard waits, with a bound, until a disabled channel is on no PBDMA. A
// neighbour that does not leave is not this guest's to wait for.
func (g *Guest) leaveCard(ch *channel, listed bool) bool {
	c := &g.agg.ctl
	if (g.quarantined.Load() || g.cardTimedOut) && c.running(ch.id) { // it has been waited for
		return false
	}
	if g.cardTimedOut {
		return true // it is disabled and off the card; the next runlist is without it
	}
	g.inlineCredits = maxInlineCredits
	ok := !listed || c.commitRunlist(g.agg.listed)
	ok = c.preempt(ch.id) && ok
	if !ok {
		g.noteCardTimeout()
	}
	return ok || !c.running(ch.id)
}

// finishClose gives back what a channel had that is on no PBDMA. What the card
// has reported of it goes to its guest first: a later owner of the same instance
// block and number must not get it.
func (g *Guest) finishClose(ch *channel) {
	a := g.agg
	a.routeAll()
	if !ch.saved {
		g.saveBack(ch)
	}
	if a.gate != nil {
		a.gate.remove(ch)
	}
	a.ctl.unbind(ch.id)
	g.mu.Lock()
	g.leaving = nil // its number may soon be another's
	g.mu.Unlock()
	a.routeAll()
	g.keep(ch)
	if !g.leave(ch.space) {
		g.waiting = append(g.waiting, ch) // for an invalidate that works
		return
	}
	g.release(ch)
}

// release gives back the names of a channel that the card knows no more.
func (g *Guest) release(ch *channel) {
	g.agg.ctl.card.WriteVRAM(ch.cardUSERD(), make([]byte, gf100.USERDSize))
	g.freeInstance(ch.inst)
	g.agg.returnChannel(ch)
	g.stats.Unbinds.Add(1)
}

// reap looks again at channels that the card had not given back.
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

// saveBack writes what the card keeps of a channel that is off it into the
// guest's own structures. It is done before the guest can see that the channel
// is off: after that the memory may be something else already.
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

// showUSERD copies what the card has written to a channel's USERD to the
// guest's.
func (g *Guest) showUSERD(ch *channel) {
	g.moving.RLock()
	defer g.moving.RUnlock()
	g.copyUSERD(ch)
}

// copyUSERD is showUSERD with Guest.moving held: a page that changes its home under a
// write would lose it. Only changes are written: each write makes the card look at every
// semaphore that is waited for.
func (g *Guest) copyUSERD(ch *channel) {
	at, ok := g.extents.translate(ch.userd, gf100.USERDSize)
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

// loadUSERD fills the card's USERD from the guest's, before the channel is bound:
// the fields that are forwarded, or shown, and nothing else. While pages move it waits:
// who moves them knows only the channels that there were, see [Aggregator.numbers].
func (g *Guest) loadUSERD(ch *channel) {
	c := g.agg.ctl.card
	page := make([]byte, gf100.USERDSize)
	at, _ := g.extents.translate(ch.userd, gf100.USERDSize)
	g.moving.RLock()
	for _, off := range append(userdShown[:], gf100.USERDGPPut) {
		c.ReadVRAM(at+off, page[off:off+4])
	}
	g.moving.RUnlock()
	ch.lastPut = binary.LittleEndian.Uint32(page[gf100.USERDGPPut:])
	ch.roundPut = ch.lastPut
	c.WriteVRAM(ch.cardUSERD(), page)
}

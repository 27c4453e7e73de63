package aggregator

import (
	"encoding/binary"

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
	stopped bool   // by us: faulted or held
	held    bool   // until the guest's driver has dealt with its error
	lastGet uint32 // GP_GET when engine events were last routed
}

// space is an address space of the guest in use by channels.
type space struct {
	shadow *shadowpt.Shadow
	refs   int
	fresh  bool // built in the round under way
}

// A rule says where a field of the card's instance block comes from.
type rule uint8

const (
	copied     rule = iota // the guest's value
	translated             // from the guest's value, by code below
	forced                 // ours
	refused                // zero, whatever the guest says
)

// instanceFields is how the card's instance block is made from the guest's. What
// is not listed is zero.
var instanceFields = []struct {
	gf100.Word
	rule
	value uint32 // of a forced field
}{
	{gf100.InstUSERDLo, translated, 0},
	{gf100.InstUSERDHi, translated, 0},
	{gf100.InstUSERDTarget, forced, 0}, // VRAM
	{gf100.InstSignature, forced, gf100.InstanceSignature},
	{gf100.InstGPGet, copied, 0},
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
}

// buildInstance makes the card's instance block.
func buildInstance(guest []byte, userd, dir uint64) []byte {
	block := make([]byte, gf100.InstanceSize)
	for _, f := range instanceFields {
		switch f.rule {
		case copied:
			f.Put(block, f.Get(guest))
		case forced:
			f.Put(block, f.value)
		}
	}
	gf100.InstUSERDLo.Put(block, uint32(userd>>12))
	gf100.InstUSERDHi.Put(block, uint32(userd>>32))
	gf100.InstPDBLo.Put(block, uint32(dir>>12))
	gf100.InstPDBHi.Put(block, uint32(dir>>32))
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
	userd := uint64(gf100.InstUSERDHi.Get(block))<<32 | uint64(gf100.InstUSERDLo.Get(block))<<12
	if _, ok := g.extents.translate(userd, gf100.USERDSize); !ok || gf100.InstUSERDTarget.Get(block) != 0 {
		g.stats.BadUSERD.Add(1)
		return nil
	}
	ch := &channel{guest: g, gid: gid, guestInst: inst, userd: userd}
	if ch.space = g.enter(instanceSpace(block)); ch.space == nil {
		return nil
	}
	if !g.withinQuota() || !g.agg.takeChannel(ch) {
		g.stats.OverQuota.Add(1)
		g.leave(ch.space)
		return nil
	}
	var err error
	if ch.inst, err = g.agg.allocOwn(gf100.InstanceSize); err != nil {
		g.agg.returnChannel(ch)
		g.leave(ch.space)
		return nil
	}
	c := g.agg.ctl.card
	c.WriteVRAM(ch.cardUSERD(), make([]byte, gf100.USERDSize))
	c.WriteVRAM(ch.inst, buildInstance(block, ch.cardUSERD(), ch.space.shadow.Dir()))
	g.agg.ctl.bind(ch.id, ch.inst)
	g.stats.Binds.Add(1)
	return ch
}

// instanceSpace reads the address space out of an instance block.
func instanceSpace(inst []byte) shadowpt.Space {
	return shadowpt.Space{
		Dir:    uint64(gf100.InstPDBHi.Get(inst))<<32 | uint64(gf100.InstPDBLo.Get(inst))<<12,
		Target: shadowpt.Target(gf100.InstPDBTarget.Get(inst)),
		Limit:  uint64(gf100.InstLimitHi.Get(inst))<<32 | uint64(gf100.InstLimitLo.Get(inst))<<12 | 0xfff,
	}
}

func (g *Guest) withinQuota() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for i := range g.channels {
		if g.channels[i].ch != nil {
			n++
		}
	}
	return n < g.limits.Channels
}

// close ends a channel of the card: it leaves the runlist, its PBDMA and the
// channel table, in this order, and what it would go on with is written back to
// the guest's instance block.
func (g *Guest) close(ch *channel) {
	a := g.agg
	a.ctl.disable(ch.id)
	a.mu.Lock()
	wasListed := ch.listed
	ch.listed = false
	a.mu.Unlock()
	if wasListed && !a.ctl.commitRunlist(a.listed) {
		g.stats.CardTimeout.Add(1)
	}
	if !a.ctl.preempt(ch.id) {
		g.stats.CardTimeout.Add(1)
	}
	a.ctl.unbind(ch.id)
	g.saveBack(ch)
	a.freeOwn(ch.inst, gf100.InstanceSize)
	a.returnChannel(ch)
	g.leave(ch.space)
	g.stats.Unbinds.Add(1)
}

// saveBack writes what the card keeps of a channel that is off it into the
// guest's own structures.
func (g *Guest) saveBack(ch *channel) {
	ours := make([]byte, gf100.InstanceSize)
	theirs := make([]byte, gf100.InstanceSize)
	if !g.agg.ctl.card.ReadVRAM(ch.inst, ours) || !g.read(shadowpt.VRAM, ch.guestInst, theirs) {
		return
	}
	for _, w := range []gf100.Word{gf100.InstGPGet, gf100.InstRef} {
		w.Put(theirs, w.Get(ours))
		g.eachRun(ch.guestInst+uint64(w.Offset), theirs[w.Offset:w.Offset+4], g.agg.ctl.card.WriteVRAM)
	}
	g.showUSERD(ch)
}

// userdShown are the fields of USERD that the card writes and the guest reads.
var userdShown = []uint64{
	gf100.USERDGet, gf100.USERDRef, gf100.USERDTopLevelGet, gf100.USERDTopLevelGetHi, gf100.USERDGetHi, gf100.USERDGPGet,
}

// showUSERD copies what the card has written to a channel's USERD to the
// guest's.
func (g *Guest) showUSERD(ch *channel) {
	at, ok := g.extents.translate(ch.userd, gf100.USERDSize)
	if !ok {
		return
	}
	c := g.agg.ctl.card
	var b [4]byte
	for _, off := range userdShown {
		c.ReadVRAM(ch.cardUSERD()+off, b[:])
		c.WriteVRAM(at+off, b[:])
	}
}

// ring forwards the guest's GP_PUT to the card.
func (g *Guest) ring(ch *channel) {
	at, ok := g.extents.translate(ch.userd, gf100.USERDSize)
	if !ok {
		return
	}
	var b [4]byte
	g.agg.ctl.card.ReadVRAM(at+gf100.USERDGPPut, b[:])
	g.agg.ctl.bell(ch.id, binary.LittleEndian.Uint32(b[:]))
}

// gpGet reads how far the card has fetched.
func (ch *channel) gpGet() (get, put uint32) {
	var b [8]byte
	ch.guest.agg.ctl.card.ReadVRAM(ch.cardUSERD()+gf100.USERDGPGet, b[:])
	return binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint32(b[4:])
}

// enter returns the address space s with one reference more, building its shadow
// if there is none.
func (g *Guest) enter(s shadowpt.Space) *space {
	sp := g.spaces[s]
	if sp == nil {
		shadow, ok := shadowpt.NewShadow(g, g, s)
		if !ok {
			g.stats.OverQuota.Add(1)
			return nil
		}
		sp = &space{shadow: shadow}
		g.spaces[s] = sp
	}
	if !sp.fresh {
		g.rebuild(sp)
	}
	sp.refs++
	return sp
}

func (g *Guest) leave(sp *space) {
	if sp.refs--; sp.refs > 0 {
		return
	}
	delete(g.spaces, sp.shadow.Space())
	g.invalidateCard()
	sp.shadow.Free()
}

func (g *Guest) rebuild(sp *space) {
	sp.shadow.Rebuild()
	sp.fresh = true
	g.stats.Rebuilds.Add(1)
}

// invalidateCard makes the card forget old translations, after which tables that
// went out of use may be given back.
func (g *Guest) invalidateCard() {
	if !g.agg.ctl.invalidate() {
		g.stats.CardTimeout.Add(1)
		return
	}
	for _, sp := range g.spaces {
		sp.shadow.Release()
	}
}

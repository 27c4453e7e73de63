package aggregator

import (
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Doorbells that a guest's client writes without a trap: the poll area is mapped, or
// the guest has put it where other windows are. The aggregator's poller looks at GP_PUT
// of each channel that may run, in the guest's USERD: one that is not what was last
// looked at is a bell, and goes the way of one that was trapped.
//
// A bell that is found late is not lost, whatever happened in between: GP_PUT is in
// memory, and is looked at when the channel is bound, and as long as it is. Nor is it
// rung for another channel: what is looked at is the channel's own page, while the
// guest's number stands for it.

// lookOut notes whether the guest's doorbells have to be looked for, and whether
// they lie where windows do not expect it.
func (g *Guest) lookOut(astray bool) {
	set := g.mapped.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.astray = astray
	g.polled = set != nil && (astray || set.Doorbells())
	g.watchAny()
}

// Poller counts what was done to find doorbells.
func (a *Aggregator) Poller() *doorbell.Stats { return &a.polled }

// SetPace changes how often they are looked for. The pace is one that Check takes.
func (a *Aggregator) SetPace(p doorbell.Pace) { a.poller.SetPace(p) }

// watch follows a change of a channel. Guest.mu is held.
func (g *Guest) watch(id uint8) {
	c := &g.channels[id]
	if c.ch != nil && c.bound && c.enabled {
		g.watched.add(id)
	} else {
		g.watched.remove(id)
	}
	g.watchAny()
}

func (g *Guest) watchAny() {
	on := g.polled && !g.watched.empty()
	g.watching.Store(on)
	if on {
		g.agg.poller.Wake()
	}
}

// lookSoon has the poller look at a guest's channels that have moved on: the guest sees
// in its own memory, and only there, that it may send more, and then does. It never waits.
func (g *Guest) lookSoon() {
	if g.watching.Load() {
		g.agg.poller.Wake()
	}
}

// doors are the guests' doorbells as the poller sees them.
type doors struct {
	agg    *Aggregator
	most   int // bytes of each guest's places that a look may compare: homes.AtOnce
	guests [MaxGuests]*Guest
}

// Look implements doorbell.Doors.
func (d *doors) Look() (rang, watched int) {
	d.agg.mu.Lock()
	d.guests = d.agg.guests
	d.agg.mu.Unlock()
	for _, g := range d.guests {
		if g != nil && g.watching.Load() {
			r, w := g.lookAtBells(d.most)
			rang, watched = rang+r, watched+w
		}
	}
	d.guests = [MaxGuests]*Guest{}
	return rang, watched
}

// lookAtBells rings what was written since it looked last, and shows the guest what
// the card reports of channels that have something to do: nobody traps the guest when
// it looks. While pages of the guest's move it does nothing; the next look will. If more of
// the guest's has to be compared than most, or has changed than others should wait for, the
// guest's own goroutine does it.
func (g *Guest) lookAtBells(most int) (rang, watched int) {
	set := g.mapped.Load()
	if set == nil {
		return 0, 1
	}
	var pages [gf100.Channels]uint64
	n := 1
	came, w := set.FreshWithin(most, g.strays(&pages))
	g.payForMerged(w)
	if came == homes.Done {
		var bells unheard
		if n = g.listen(&bells); bells.n == 0 {
			return 0, n
		}
		if came = g.gatherWithin(most); came == homes.Done {
			return g.ringUnheard(&bells), n
		}
	}
	if came == homes.TooMuch {
		g.leaveLook()
	}
	return 0, n
}

// leaveLook leaves a look to the guest's goroutine.
func (g *Guest) leaveLook() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.pending.look {
		g.pending.look = true
		g.wake.Broadcast()
	}
}

// What a byte of a place is in bytes of the rate (see toll), as BenchmarkGatherWithin of homes
// finds it: to compare it with what it was, to look at it word by word, and to bring its word
// home.
const (
	perCompared = 0.5 / bytesPerUnit
	perMerged   = 4. / bytesPerUnit
	perMoved    = 5.
)

// gather brings to where the card finds it what the guest wrote to mapped places. It is the
// guest's goroutine's.
func (g *Guest) gather() {
	if set := g.mapped.Load(); set != nil && set.Aliased() {
		g.payFor(set.GatherAll())
	}
}

// gatherWithin is gather for who keeps others waiting. To compare so little is nothing to pay for.
func (g *Guest) gatherWithin(most int) homes.Outcome {
	set := g.mapped.Load()
	if set == nil {
		return homes.Done
	}
	out, w := set.GatherWithin(most)
	g.payForMerged(w)
	return out
}

func (g *Guest) payForMerged(w homes.Work) {
	if w.Merged > 0 {
		g.payFor(w)
	}
}

// payFor has the guest pay for what was done of its places as for work on its tables.
func (g *Guest) payFor(w homes.Work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cost := perCompared*float64(w.Compared) + perMerged*float64(w.Merged) + perMoved*float64(w.Moved)
	g.tableBudget.spend(time.Now(), g.agg.opts.TableRate, cost)
}

// ownLook is lookAtBells by the guest's own goroutine, for the guest that has much in many
// places. The others' bells do not wait for it, and what it compares the guest pays for:
// its goroutine waits while that is more than the rate.
func (g *Guest) ownLook() {
	set := g.mapped.Load()
	if set == nil {
		return
	}
	g.stats.OwnLooks.Add(1)
	var pages [gf100.Channels]uint64
	g.payFor(set.FreshAll(g.strays(&pages)))
	var bells unheard
	if g.listen(&bells); bells.n == 0 {
		return
	}
	g.gather()
	if g.ringUnheard(&bells) > 0 {
		g.lookSoon() // where one was there soon is another
	}
}

// strays lists in pages those that channels have their bells in, if these may have been
// written elsewhere. Several channels may have theirs in one.
func (g *Guest) strays(pages *[gf100.Channels]uint64) []uint64 {
	n := 0
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.astray {
		g.watched.each(func(id uint8) {
			pages[n] = g.channels[id].ch.userd
			n++
		})
	}
	list := pages[:n]
	slices.Sort(list)
	return slices.Compact(list)
}

// unheard are bells that were found and are to be rung.
type unheard struct {
	bells [gf100.Channels]putRead
	n     int
}

// listen notes which channels have news, and returns how many are looked at.
func (g *Guest) listen(to *unheard) (watched int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.moving.TryRLock() {
		return 1 // the others need not wait for it
	}
	defer g.moving.RUnlock()
	g.watched.each(func(id uint8) {
		watched++
		if g.rebinding(id) {
			return
		}
		ch := g.channels[id].ch
		if b, news := ch.readPut(); news {
			to.bells[to.n] = b
			to.n++
		}
		if ch.userdStale {
			more := ch.reports()
			g.copyUSERD(ch)
			ch.userdStale = more
		}
	})
	return watched
}

// ringUnheard rings the bells that nobody else has heard since.
func (g *Guest) ringUnheard(bells *unheard) (rang int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range bells.bells[:bells.n] {
		id := b.ch.gid
		if !g.watched.has(id) || g.rebinding(id) || !g.notePut(b) {
			continue
		}
		g.stats.PolledDoorbells.Add(1)
		g.ring(id, true)
		rang++
	}
	return rang
}

// put reads the guest's GP_PUT.
func (ch *channel) put() (put uint32, ok bool) {
	at, ok := ch.guest.extents.translate(ch.userd, gf100.USERDSize)
	if !ok {
		return 0, false
	}
	return ch.guest.agg.ctl.readVRAM(at + gf100.USERDGPPut), true
}

// reports reports whether the card may have more to report of a channel.
func (ch *channel) reports() bool {
	c := &ch.guest.agg.ctl
	at := ch.cardUSERD()
	return ch.waits() || c.readVRAM(at+gf100.USERDGPGet) != c.readVRAM(at+gf100.USERDGPPut) || !c.quiet(ch.id)
}

package aggregator

import "github.com/umbra-gpu/umbra/mmio/gf100"

// work is the guest's goroutine: it does what is noted in todo, a round at a
// time, in the order in which one thing depends on another.
func (g *Guest) work() {
	defer g.working.Done()
	for g.next() {
		t := &g.doing // stable until finish: only this goroutine changes it
		for _, sp := range g.spaces {
			sp.fresh = false
		}
		t.bind.each(g.rebind)
		g.refreshShadows(t.invalidate)
		if t.runlist {
			g.commit(t.base, t.count)
		}
		t.preempt.each(g.preempt)
		g.finish()
	}
	g.mu.Lock()
	var left []*channel
	for i := range g.channels {
		if ch := g.channels[i].ch; ch != nil {
			left = append(left, ch)
		}
		g.channels[i] = guestChannel{}
	}
	g.mu.Unlock()
	for _, ch := range left {
		g.close(ch)
	}
}

// next waits for something to do and moves it to doing. It returns false when
// the guest is removed.
func (g *Guest) next() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.todo.empty() && !g.closing {
		g.wake.Wait()
	}
	g.doing, g.todo = g.todo, todo{}
	return !g.closing
}

// finish ends a round: bells that waited for it are rung, and the guest may see
// that it is done.
func (g *Guest) finish() {
	g.mu.Lock()
	runlist := g.doing.runlist
	g.doing.bell.each(func(id uint8) {
		if ch := g.channels[id].ch; ch != nil {
			g.ring(ch)
		}
	})
	g.doing = todo{}
	g.wake.Broadcast()
	g.mu.Unlock()
	g.ev.Done(runlist)
}

// rebind makes the card's channel what the guest's table says.
func (g *Guest) rebind(id uint8) {
	g.mu.Lock()
	c := &g.channels[id]
	old, want, inst := c.ch, c.bound, c.inst
	c.ch = nil
	g.mu.Unlock()
	if old != nil {
		g.close(old)
	}
	if !want {
		return
	}
	ch := g.open(id, inst)
	if ch == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.ch = ch
	if c.enabled {
		g.agg.ctl.enable(ch.id)
	}
}

// refreshShadows builds the named address spaces anew.
func (g *Guest) refreshShadows(v invalidations) {
	if !v.any() {
		return
	}
	built := false
	for s, sp := range g.spaces {
		if v.has(s) {
			if !sp.fresh {
				g.rebuild(sp)
			}
			built = true
		}
	}
	if built {
		g.invalidateCard()
	}
}

// commit merges the guest's runlist into the card's.
func (g *Guest) commit(base, count uint32) {
	listed := g.readRunlist(base, count)
	g.mu.Lock()
	var ours [gf100.Channels]*channel
	for i := range g.channels {
		ours[i] = g.channels[i].ch
	}
	g.mu.Unlock()
	a := g.agg
	a.mu.Lock()
	for i, ch := range ours {
		if ch != nil {
			ch.listed = listed.has(uint8(i))
		}
	}
	a.mu.Unlock()
	if !a.ctl.commitRunlist(a.listed) {
		g.stats.CardTimeout.Add(1)
	}
}

func (g *Guest) preempt(id uint8) {
	g.mu.Lock()
	ch := g.channels[id].ch
	g.mu.Unlock()
	if ch == nil {
		return
	}
	if !g.agg.ctl.preempt(ch.id) {
		g.stats.CardTimeout.Add(1)
		return
	}
	g.saveBack(ch)
}

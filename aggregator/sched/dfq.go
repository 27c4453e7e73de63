package sched

import "time"

// Disengaged fair queueing, for each engine separately. Most of the time, in the free run, all
// requests go to the card, which takes them in turn, except those of groups that are too far
// ahead. Periodically the card is drained and each group has it for a slice, which measures the
// length of its requests. Then the policy decides which groups to hold back in the next free
// run.
//
// The charge is the measured time of every completion. With DFQConfig.Model it is the estimate
// from the samples, for cards that do not report completions of the free run. A group that
// behaves differently while it is sampled then gains.

const (
	dfqWindow   = 2                      // requests of a channel on the card
	dfqRequests = 96                     // after so many a slice ends early
	dfqLeast    = 5                      // before so many a slice does not end, up to four slices
	dfqGrace    = 500 * time.Microsecond // after which a group that submits nothing is idle
)

// The phases of an engine.
const (
	freeRun uint8 = iota
	drain         // before the first sample
	sample
	settle // a slice is over, its requests have not ended
)

type dfq struct{ open }

func newDFQ(s *core, old *Config) policy {
	p := dfq{open{plain{s}}}
	s.window = dfqWindow
	if old.Policy != DFQ {
		p.start()
	}
	return p
}

// start puts each level to the least tag, since no tag is below it from now on. What was received does
// not raise the levels.
func (s dfq) start() {
	for e := range s.Engines {
		d := &s.Engines[e].DFQ
		*d = DFQState{Since: s.Now, IdleAt: never, Order: d.Order[:0]}
		for n := range s.Nodes {
			l := &s.Nodes[n].Lanes[e]
			l.Received = 0
			if s.Nodes[n].Kind == Inner && int32(n) != root && l.Able > 0 {
				up := &s.Nodes[s.Nodes[n].Parent].Lanes[e]
				up.Level = min(up.Level, l.Tag)
			}
		}
	}
}

// Timer lets all have a turn in the free run.
func (s dfq) Timer(e int) int32 {
	over, slice := true, s.Config.DFQ.Slice
	if p := s.Engines[e].DFQ.Phase; p == freeRun || p == sample {
		if over = false; s.restEnd() == never {
			slice = forever
		}
	}
	return s.overstays(e, slice, func(_, _ int32, _ int) bool { return over })
}

// Arrive decides also, for a node that gets work in the middle of a free run, whether to hold it back.
func (s dfq) Arrive(n int32, e int) {
	l, d := &s.Nodes[n].Lanes[e], &s.Engines[e].DFQ
	l.Tag = max(l.Tag, s.Nodes[s.Nodes[n].Parent].Lanes[e].Level)
	if d.Phase == freeRun && s.Nodes[n].Kind == Inner {
		l.Held = s.tooFar(n, e, max(d.End-d.Since, s.freeRun(s.Config.DFQ.Slice)))
	}
}

// Charge also counts the requests of a sample.
func (s dfq) Charge(c int32, e int, u Use) {
	if !s.Config.DFQ.Model {
		s.addTag(c, e, u.Busy+u.Expected)
	}
	d := &s.Engines[e].DFQ
	if u.Entries > 0 && (d.Phase == sample || d.Phase == settle) && s.Nodes[c].Parent == s.group(e) {
		d.Done += u.Entries
		d.Busy += u.Run
		d.IdleAt = never
	}
}

// addTag adds to the tags of a node and of all above it.
func (s dfq) addTag(n int32, e int, d time.Duration) {
	for ; n != root; n = s.Nodes[n].Parent {
		s.Nodes[n].Lanes[e].Tag += over(d, s.weight(n))
	}
}

// group is the one that is sampled, none if it is gone.
func (s dfq) group(e int) int32 {
	d := &s.Engines[e].DFQ
	return s.find(d.Order[d.At])
}

func (s dfq) enterPhase(e int, p uint8) {
	eng := &s.Engines[e]
	d := &eng.DFQ
	d.Phase, d.Since, d.IdleAt, eng.Alone = p, s.Now, never, 0
}

// Next goes through the phases. In the free run, Depth is no limit.
func (s dfq) Next(e int) (int32, int) {
	eng := &s.Engines[e]
	d := &eng.DFQ
	for {
		switch d.Phase {
		case freeRun:
			if s.Now < d.End {
				if eng.Groups > 1 {
					eng.Wake = d.End
				}
				if s.idle(e, s.busy(e) > 0 || s.readyBelow(root, e) || s.Nodes[root].Lanes[e].Able == 0) {
					d.IdleAt = never // all nodes with work are held back
					s.hold(e, 0, true)
				}
				return s.open.Next(e)
			}
			s.enterPhase(e, drain)
		case drain:
			if s.busy(e) > 0 && eng.Groups > 1 {
				return none, 0
			}
			s.plan(e)
			if len(d.Order) > 0 {
				s.begin(e)
				continue
			}
			// There is no other group to compare with, but the tag rises for groups that
			// follow.
			f := s.freeRun(s.Config.DFQ.Slice)
			s.hold(e, f, false)
			for n := range s.Nodes {
				s.Nodes[n].Lanes[e].Held = false
			}
			s.enterPhase(e, freeRun)
			d.End = s.Now + f
		case sample:
			if g := s.group(e); g != none && !s.sliceOver(g, e) {
				if d.Wide {
					g = s.firstReady(s.guestOf(g), e)
				}
				if g == none || s.busy(e) >= s.Config.Depth {
					return none, 0
				}
				return s.give(s.first(g, e, byTurn), g, e, 1)
			}
			s.enterPhase(e, settle)
		case settle:
			if s.busy(e) > 0 {
				return none, 0
			}
			s.endSlice(e)
		}
	}
}

func (s dfq) freeRun(season time.Duration) time.Duration {
	if f := s.Config.DFQ.FreeRun; f > 0 {
		return f
	}
	return time.Duration(s.Config.DFQ.Factor) * season
}

// plan lists the groups to sample: those with work that are not held back, if there are two
// with work. A held one counts as if it had had its slice.
func (s dfq) plan(e int) {
	d := &s.Engines[e].DFQ
	d.Order, d.At, d.Season = d.Order[:0], 0, 0
	some := 0
	for i := range s.Nodes {
		n := int32(i)
		if !s.isGroup(n) || !s.able(n, e) {
			continue
		}
		some++
		held := false
		for m := n; m != root; m = s.Nodes[m].Parent {
			held = held || s.Nodes[m].Lanes[e].Held
		}
		if held {
			d.Season += s.Config.DFQ.Slice
		} else {
			d.Order = append(d.Order, s.id(n))
		}
	}
	if some < 2 {
		d.Order, d.Season = d.Order[:0], 0
	}
}

func (s dfq) begin(e int) {
	d := &s.Engines[e].DFQ
	s.enterPhase(e, sample)
	d.Wide, d.Done, d.Busy, d.From = false, 0, 0, s.Now
	s.Engines[e].Alone = d.Order[d.At]
}

// sliceOver reports whether the group under way has had its slice.
func (s dfq) sliceOver(g int32, e int) bool {
	eng, slice := &s.Engines[e], s.Config.DFQ.Slice
	d := &eng.DFQ
	took := s.Now - d.Since
	enough := d.Done >= dfqLeast || took >= 4*slice
	if s.barred(g, e) || enough && (took >= slice || d.Done >= dfqRequests) {
		return true
	}
	eng.Wake = d.Since + slice
	if took >= slice {
		eng.Wake = d.Since + 4*slice
	}
	if !s.idle(e, s.busy(e) > 0 || s.readyBelow(g, e)) {
		return false
	}
	// It has nothing to run now. It may be idle, or wait for another group of its guest.
	if l := &s.Nodes[g].Lanes[e]; l.Waiting+l.Inflight > 0 && !d.Wide {
		d.Wide, d.IdleAt = true, never
		s.Counts.Spoilt++
		return s.firstReady(s.guestOf(g), e) == none
	}
	return true
}

// idle reports whether an engine has had nothing to run for dfqGrace.
func (s dfq) idle(e int, runs bool) bool {
	eng := &s.Engines[e]
	d := &eng.DFQ
	switch {
	case runs:
		d.IdleAt = never
		return false
	case d.IdleAt == never:
		d.IdleAt = s.Now
	}
	if end := d.IdleAt + dfqGrace; s.Now < end {
		eng.Wake = min(eng.Wake, end)
		return false
	}
	return true
}

// firstReady finds a group at or below n that could have a turn, even if it is held.
func (s dfq) firstReady(n int32, e int) int32 {
	found := none
	s.walk(n, 0, func(m int32, _ int) {
		if found == none && s.isGroup(m) && !s.barred(m, e) && s.readyBelow(m, e) {
			found = m
		}
	})
	return found
}

// endSlice closes the slice under way, and the season after the last.
func (s dfq) endSlice(e int) {
	c, d := &s.Config.DFQ, &s.Engines[e].DFQ
	d.Season += s.Now - d.From
	if g := s.group(e); g != none {
		l := &s.Nodes[g].Lanes[e]
		l.Mean = 0
		if d.Done > 0 && !d.Wide {
			l.Mean = d.Busy / time.Duration(d.Done)
		}
	}
	if d.At++; d.At < len(d.Order) {
		s.begin(e)
		return
	}
	f := s.freeRun(max(d.Season, c.Slice))
	if c.Model {
		s.chargeEstimates(e, f)
	}
	s.hold(e, f, false)
	s.enterPhase(e, freeRun)
	d.End = s.Now + f
}

// chargeEstimates charges each sampled group its expected use of a free run if the card takes turns
// of one request, as long as in the sample. The weight counts in the charge only: in the sum
// as well it would cancel.
func (s dfq) chargeEstimates(e int, f time.Duration) {
	sum := time.Duration(0)
	for _, id := range s.Engines[e].DFQ.Order {
		if g := s.find(id); g != none {
			sum += s.Nodes[g].Lanes[e].Mean
		}
	}
	for _, id := range s.Engines[e].DFQ.Order {
		if g := s.find(id); g != none && sum > 0 {
			s.addTag(g, e, time.Duration(float64(f)*float64(s.Nodes[g].Lanes[e].Mean)/float64(sum)))
		}
	}
}

// hold decides which nodes to hold back in a free run of length f: those that are ahead of
// the least served sibling by more than their share of f. The least served is never held. If
// urgent, only nodes that can run now count.
func (s dfq) hold(e int, f time.Duration, urgent bool) {
	for n := range s.Nodes {
		least, some := int64(0), false
		for c := s.Nodes[n].First; c != none && s.Nodes[c].Kind == Inner; c = s.Nodes[c].Next {
			if tag := s.Nodes[c].Lanes[e].Tag; (!some || tag < least) && s.able(c, e) {
				least, some = tag, true
			}
		}
		if l := &s.Nodes[n].Lanes[e]; some {
			l.Level = max(l.Level, least)
		}
	}
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Inner || int32(n) == root {
			continue
		}
		l := &s.Nodes[n].Lanes[e]
		can := s.able(int32(n), e)
		if !urgent && !can { // nodes that cannot run save nothing
			l.Tag = max(l.Tag, s.Nodes[s.Nodes[n].Parent].Lanes[e].Level)
		}
		l.Held = can && s.tooFar(int32(n), e, f)
	}
}

// able reports whether a node has work and no bar.
func (s dfq) able(n int32, e int) bool { return s.Nodes[n].Lanes[e].Able > 0 && !s.barred(n, e) }

// tooFar reports whether a node is to be held back in a free run of length f.
func (s dfq) tooFar(n int32, e int, f time.Duration) bool {
	up := &s.Nodes[s.Nodes[n].Parent].Lanes[e]
	return s.Nodes[n].Lanes[e].Tag > up.Level+over(f, max(up.Live+up.Left, 1))
}

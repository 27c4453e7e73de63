package channels

// Planned is what is to go wrong with the next submissions, for tests of the guest's driver.
type Planned struct {
	Hung   bool   // submissions wait until it is false
	Faults int    // so many submissions end their channels
	Over   func() // called on a goroutine of its own after the last of them

	held Set // channels with submissions that wait
}

// take reports whether a submission does not reach the card. The guest's lock is held.
func (p *Planned) take(ch *Channel, put uint32) bool {
	switch {
	case p.Hung:
		p.held.Add(ch.ID)
		return true
	case ch.seen.planted:
		return true // its fault is on its way
	case p.Faults > 0 && ch.seen.put != put:
		ch.seen.planted = true
		if p.Faults--; p.Faults == 0 {
			go p.Over()
		}
		ch.of.guest.Plant(ch)
		return true
	}
	return false
}

// Plan replaces the plan. It returns the channels whose submissions waited by the last one. The guest's lock is held.
func (c *Channels) Plan(p Planned) (held Set) {
	held = c.Planned.held
	c.Planned = p
	if p.Hung {
		c.Planned.held, held = held, Set{}
	}
	return held
}

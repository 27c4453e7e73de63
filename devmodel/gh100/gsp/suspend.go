package gsp

import "slices"

// suspend takes from the host what it has of the guest, and keeps the objects.
func (g *GSP) suspend() {
	for _, n := range slices.Backward(g.objects.all()) {
		switch {
		case n.Class == clSpace:
			g.host.DropSpace(n.Space.ID)
		case n.Channel.Opened:
			g.host.CloseChannel(n.Channel.ID)
		}
	}
	if g.BAR2 != 0 {
		g.host.SetBAR2(0)
	}
	g.Suspended = true
}

// resume gives it back. Spaces get new ids. A channel for which the host has no room has failed; one that
// failed before does not come back.
func (g *GSP) resume() {
	g.Suspended = false
	if g.BAR2 != 0 {
		g.host.SetBAR2(g.BAR2)
	}
	ids := make(map[uint64]uint64)
	for _, n := range g.objects.all() {
		switch s, c := &n.Space, &n.Channel; n.Class {
		case clSpace:
			g.Spaces++
			ids[s.ID], s.ID = g.Spaces, g.Spaces
			g.host.NewSpace(s.ID)
			if s.Target != TargetNone {
				g.host.SetDirectory(s.ID, s.Root, s.Target)
			}
		case clChannel:
			c.Space = ids[c.Space]
			switch {
			case !c.Opened:
			case c.Failed:
				c.Opened = false
			case g.host.OpenChannel(*c) != nil:
				c.Opened = false
				g.Failed(c.ID, ErrorGraphics, 0, 0)
			case c.Scheduled && !g.Stopped:
				g.host.Schedule(c.ID, true)
			}
		}
	}
}

package aggregator

import "github.com/umbra-gpu/umbra/shadowpt"

// space is an address space of the guest in use by channels. Spaces belong to
// the guest's goroutine.
type space struct {
	key    spaceKey
	shadow *shadowpt.Shadow
	refs   int
	fresh  bool // built, or brought up to date, in the round under way
}

// spaceKey names an address space: channels whose limits differ share the tables
// of one directory.
type spaceKey struct {
	dir    uint64
	target shadowpt.Target
}

func keyOf(s shadowpt.Space) spaceKey { return spaceKey{s.Dir, s.Target} }

// enter returns the address space s with one reference more, building its shadow
// if there is none. It returns nil if there is no room for one.
func (g *Guest) enter(s shadowpt.Space) *space {
	key := keyOf(s)
	sp := g.spaces[key]
	if sp == nil {
		shadow, ok := shadowpt.NewShadow(&g.tableMeter, &g.tableMeter, g.tableWork, s)
		if !ok {
			return nil
		}
		sp = &space{key: key, shadow: shadow}
		g.spaces[key] = sp
		g.build(sp)
	} else {
		g.bring(&invalidations{dirs: [4]spaceKey{key}, n: 1})
	}
	sp.refs++
	return sp
}

// leave takes one reference, and gives the tables back with the last. It returns
// false if the card may still be walking them: they wait for a later invalidate.
func (g *Guest) leave(sp *space) bool {
	if sp.refs--; sp.refs > 0 {
		return true
	}
	delete(g.spaces, sp.key)
	if g.following {
		g.tracker.Unfollow(sp.shadow)
	}
	g.retiredSpaces = append(g.retiredSpaces, sp)
	return g.invalidateCard()
}

// directories lists those of the guest that the card may know. If there is none it
// is a place where none is: then there is nothing to forget, but steps to wait for.
func (g *Guest) directories() (dirs []uint64) {
	for _, sp := range g.spaces {
		dirs = append(dirs, sp.shadow.Dir())
	}
	for _, sp := range g.retiredSpaces {
		dirs = append(dirs, sp.shadow.Dir())
	}
	if len(dirs) == 0 {
		dirs = append(dirs, g.ownRuns[0].addr)
	}
	return dirs
}

// invalidateCard makes the card forget old translations, after which everything
// that went out of use may be given back.
func (g *Guest) invalidateCard() bool {
	if g.cardTimedOut {
		return false
	}
	if !g.agg.ctl.invalidate(g.directories()...) {
		g.noteCardTimeout()
		return false
	}
	g.stale = false
	g.stats.CardInvalidates.Add(1)
	g.tracker.Release()
	for _, sp := range g.spaces {
		sp.shadow.Release()
	}
	for _, sp := range g.retiredSpaces {
		sp.shadow.Free()
	}
	g.retiredSpaces = nil
	for _, ch := range g.waiting {
		g.release(ch)
	}
	g.waiting = nil
	return true
}

package aggregator

import "github.com/umbra-gpu/umbra/shadowpt"

// space is an address space in use by channels of the guest. Spaces belong to the
// guest's worker.
type space struct {
	key    spaceKey
	shadow *shadowpt.Shadow
	refs   int
	fresh  bool // updated in the current round
}

// spaceKey identifies an address space by its directory. Channels with different limits
// may share one.
type spaceKey struct {
	dir    uint64
	target shadowpt.Target
}

func keyOf(s shadowpt.Space) spaceKey { return spaceKey{s.Dir, s.Target} }

// enter returns the address space s with one more reference. It builds the shadow if
// there is none, and returns nil if there is no room for it.
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
		g.build(sp, false)
	} else {
		g.update(&invalidations{dirs: [4]spaceKey{key}, n: 1})
	}
	sp.refs++
	return sp
}

// leave drops one reference, and frees the tables with the last. It returns false if the
// card may still be walking them: then they wait for a later invalidate.
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

// directories lists the guest's directories that the card may know.
func (g *Guest) directories() (dirs []uint64) {
	for _, sp := range g.spaces {
		dirs = append(dirs, sp.shadow.Dir())
	}
	for _, sp := range g.retiredSpaces {
		dirs = append(dirs, sp.shadow.Dir())
	}
	return dirs
}

// invalidateCard makes the card drop old translations, and then frees everything that
// went out of use.
func (g *Guest) invalidateCard() bool {
	if g.cardTimedOut {
		return false
	}
	if !g.share.Invalidate(g.directories()...) {
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

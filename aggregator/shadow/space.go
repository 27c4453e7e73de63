package shadow

import "github.com/umbra-gpu/umbra/shadowpt"

// Space is an address space in use by channels of the guest. It belongs to the worker, except
// for its Key.
type Space struct {
	Key    Key
	shadow *shadowpt.Shadow
	refs   int
	fresh  bool // updated in the current round
}

// Dir is the directory of the shadow, for the card.
func (sp *Space) Dir() uint64 { return sp.shadow.Dir() }

// Enter returns the address space s with one more reference. It builds the shadow if there is
// none, and returns nil if there is no room for it.
func (sh *Shadows) Enter(s shadowpt.Space) *Space {
	key := keyOf(s)
	sp := sh.spaces[key]
	if sp == nil {
		shadow, ok := shadowpt.NewShadow(&sh.meter, &sh.meter, sh.work, s)
		if !ok {
			return nil
		}
		sp = &Space{Key: key, shadow: shadow}
		sh.spaces[key] = sp
		sh.build(sp, false)
	} else {
		sh.Update(Only(key))
	}
	sp.refs++
	return sp
}

// Leave drops one reference. It reports whether that was the last: then the tables are freed
// at the next invalidate of the card, which may still be walking them.
func (sh *Shadows) Leave(sp *Space) (last bool) {
	if sp.refs--; sp.refs > 0 {
		return false
	}
	delete(sh.spaces, sp.Key)
	if sh.following {
		sh.tracker.Unfollow(sp.shadow)
	}
	sh.retired = append(sh.retired, sp)
	return true
}

// Retired is how many address spaces wait for an invalidate of the card.
func (sh *Shadows) Retired() int { return len(sh.retired) }

// Stale reports whether shadows changed, or were left, since the card's last invalidate.
func (sh *Shadows) Stale() bool { return sh.stale || len(sh.retired) > 0 }

// InvalidateCard makes the card drop old translations, and then frees the tables that went out
// of use. It returns false if the card took too long.
func (sh *Shadows) InvalidateCard() bool {
	var dirs []uint64 // of the guest's, those that the card may know
	for _, sp := range sh.spaces {
		dirs = append(dirs, sp.Dir())
	}
	for _, sp := range sh.retired {
		dirs = append(dirs, sp.Dir())
	}
	if !sh.card.Invalidate(dirs...) {
		return false
	}
	sh.stale = false
	sh.stats.CardInvalidates.Add(1)
	sh.tracker.Release()
	for _, sp := range sh.spaces {
		sp.shadow.Release()
	}
	for _, sp := range sh.retired {
		sp.shadow.Free()
	}
	sh.retired = nil
	return true
}

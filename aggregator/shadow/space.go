package shadow

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Space is an address space in use by channels of the guest. It belongs to the worker, except
// for its Key.
type Space struct {
	Key    Key
	card   card.Space
	shadow *shadowpt.Shadow
	refs   int
	fresh  bool // updated in the current round
}

// Card is the card's space.
func (sp *Space) Card() card.Space { return sp.card }

// Enter returns the address space s with one more reference. It builds the shadow if there is
// none, and returns nil if there is no room for it.
func (sh *Shadows) Enter(s shadowpt.Space) *Space {
	key := keyOf(s)
	sp := sh.spaces[key]
	if sp == nil {
		space, err := sh.card.NewSpace()
		if err != nil {
			return nil
		}
		sp = &Space{Key: key, card: space, shadow: shadowpt.NewShadow(&sh.meter, metered{space, &sh.meter}, sh.work, s)}
		sh.spaces[key] = sp
		sh.build(sp, false)
	} else {
		sh.Update(Only(key))
	}
	sp.refs++
	return sp
}

// Leave drops one reference. It reports whether that was the last: then the card's space is freed
// at the next invalidate.
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

// InvalidateCard makes the card drop old translations, and then frees the shadows that went out of use. It
// returns false if the card took too long.
func (sh *Shadows) InvalidateCard() bool {
	spaces := make([]card.Space, 0, len(sh.spaces)+len(sh.retired))
	for _, sp := range sh.spaces {
		spaces = append(spaces, sp.card)
	}
	for _, sp := range sh.retired {
		spaces = append(spaces, sp.card)
	}
	if !sh.card.Invalidate(spaces...) {
		return false
	}
	sh.stale = false
	sh.stats.CardInvalidates.Add(1)
	sh.tracker.Release()
	for _, sp := range sh.retired {
		sp.shadow.Free()
		sp.card.Free()
	}
	sh.retired = nil
	return true
}

package soft

import (
	"crypto/rand"
	"encoding/binary"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// maxSaved is the limit of saved states of unbound channels per owner: the number of
// channels. The oldest is dropped first.
const maxSaved = gf100.Channels

// Contexts is the saved state of unbound channels. Real hardware saves it in RAMFC and in
// context images, whose layout only the microcode knows; this card saves it here, under a
// token that it writes to RAMFC. A driver that unbinds a channel and binds the same
// instance block again, as nouveau does around a suspend, finds the channel as it was.
// Guarded by Card.mu.
//
// Each owner has its own limit and its own tokens: it can neither displace nor name
// another's state.
//
// Tokens are random, so that a forged block names no state. A reset of the card keeps what is
// saved: QEMU resets the card when a guest wakes up, and real hardware has this state in memory
// that the guest's driver saved and restores. The next host cannot restore any of it, nor the state
// of channels that this host left bound.
type Contexts struct {
	// Golden is the class state that the driver builds through the method ports
	// when it makes the first graphics context; new channels start from it.
	Golden  *engine.GR
	Renew   bool                         // the card was reset: the next method begins another Golden
	Saved   [gf100.Owners][]savedContext // oldest first
	Session uint64                       // counts hosts
}

type savedContext struct {
	Token uint64
	Exec  *Exec
}

// forget drops everything when the host changes.
func (t *Contexts) forget() { *t = Contexts{Session: t.Session + 1} }

// goldenMethod records a write of the method ports (404488, 40448c).
func (t *Contexts) goldenMethod(class, method, data uint32) {
	if t.Golden == nil || t.Renew {
		t.Golden, t.Renew = new(engine.GR), false
	}
	t.Golden.ApplyDefault(uint16(class), method, data)
}

// keep saves an unbound channel's state, unless an earlier host bound it.
func (t *Contexts) keep(ch *channel) {
	if ch.Session != t.Session {
		return
	}
	list := t.Saved[ch.Owner]
	list = slices.Delete(list, 0, max(0, len(list)+1-ch.Keep))
	x := ch.Exec
	t.Saved[ch.Owner] = append(list, savedContext{ch.Token, &x})
}

// restore gives a channel the state that its driver's token names, if kind, ring and position agree with
// what the driver says, and a new token.
func (t *Contexts) restore(ch *channel, token uint64) {
	var b [8]byte
	rand.Read(b[:]) // never fails
	ch.Token = binary.LittleEndian.Uint64(b[:]) | 1
	list := t.Saved[ch.Owner]
	i := slices.IndexFunc(list, func(s savedContext) bool { return s.Token == token })
	if i < 0 {
		return
	}
	x := list[i].Exec
	t.Saved[ch.Owner] = slices.Delete(list, i, i+1)
	if x.Ring != ch.Ring || x.RingLog2 != ch.RingLog2 || x.GPGet != ch.GPGet || (x.Hopper == nil) != (ch.Hopper == nil) {
		return
	}
	x.USERD, x.USERDTarget = ch.USERD, ch.USERDTarget // derived from the channel's number
	ch.Exec = *x
	ch.kind.contexts(ch)
}

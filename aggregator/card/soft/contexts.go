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

// contexts is the saved state of unbound channels. Real hardware saves it in RAMFC and in
// context images, whose layout only the microcode knows; this card saves it here, under a
// token that it writes to RAMFC. A driver that unbinds a channel and binds the same
// instance block again, as nouveau does around a suspend, finds the channel as it was.
// Guarded by Card.mu.
//
// Each owner has its own limit and its own tokens: it can neither displace nor name
// another's state.
//
// Tokens are random, so that a forged block names no state. A reset of the card forgets all
// of them.
type contexts struct {
	// golden is the class state that the driver builds through the method ports
	// when it makes the first graphics context; new channels start from it.
	golden *engine.GR
	saved  [gf100.Owners][]savedContext // oldest first
}

type savedContext struct {
	token uint64
	exec  *exec
}

func (t *contexts) reset() { *t = contexts{} }

// goldenMethod records a write of the method ports (404488, 40448c).
func (t *contexts) goldenMethod(class, method, data uint32) {
	if t.golden == nil {
		t.golden = new(engine.GR)
	}
	t.golden.ApplyDefault(uint16(class), method, data)
}

// name gives a bound channel its token.
func (t *contexts) name(ch *channel, block []byte) {
	var b [8]byte
	rand.Read(b[:]) // never fails
	ch.token = binary.LittleEndian.Uint64(b[:]) | 1
	gf100.InstTokenLo.Put(block, uint32(ch.token))
	gf100.InstTokenHi.Put(block, uint32(ch.token>>32))
}

// keep saves an unbound channel's state.
func (t *contexts) keep(ch *channel) {
	list := t.saved[ch.owner]
	list = slices.Delete(list, 0, max(0, len(list)+1-ch.keep))
	x := ch.exec
	t.saved[ch.owner] = append(list, savedContext{ch.token, &x})
}

// restore gives a channel the state that its instance block names, if ring and position
// agree with the block.
func (t *contexts) restore(ch *channel, block []byte) {
	token := uint64(gf100.InstTokenHi.Get(block))<<32 | uint64(gf100.InstTokenLo.Get(block))
	list := t.saved[ch.owner]
	i := slices.IndexFunc(list, func(s savedContext) bool { return s.token == token })
	if i < 0 {
		return
	}
	x := list[i].exec
	t.saved[ch.owner] = slices.Delete(list, i, i+1)
	if x.ring != ch.ring || x.ringLog2 != ch.ringLog2 || x.gpGet != ch.gpGet {
		return
	}
	x.userd, x.userdTarget = ch.userd, ch.userdTarget // derived from the channel's number
	ch.exec = *x
}

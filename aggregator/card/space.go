package card

import "github.com/umbra-gpu/umbra/shadowpt"

// Change is a change of an address space.
type Change = shadowpt.Change

// Space is an address space of a card. Which tables it has, and where they lie, is the card's
// business.
type Space interface {
	shadowpt.Card
	// Free gives back what the card has for the space. No channel may use it, and the card must have
	// completed an invalidate of it since the last one did.
	Free()
}

// ErrTables says that there is no memory left for a channel, a space or its tables.
var ErrTables = shadowpt.ErrTables

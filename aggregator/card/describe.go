package card

import "github.com/umbra-gpu/umbra/shadowpt"

// Describer is a card with registers that also takes channels which the registers do not reach: their
// driver describes them. They share numbers, engines and memory with the others, and the Meter has both.
type Describer interface {
	Meter
	// Format is that of the address spaces of a class of channels. ok is false if the card takes no such
	// class by description.
	Format(class uint16) (f *shadowpt.Format, ok bool)
	// OpenChannel makes a channel that is stopped. A reset of the card ends it.
	OpenChannel(Description) (DescribedChannel, error)
	// InvalidateSpaces makes the card drop its translations of the spaces, which may be none, of an owner's
	// channels. It does not wait: ended reports whether the steps that were under way have ended.
	InvalidateSpaces(owner uint8, spaces ...shadowpt.Space) (ended func() bool)
}

// Description describes a channel. Owner and Keep are of its share: its number and its channels.
type Description struct {
	Class      uint16
	Number     uint32 // that no channel has
	Space      shadowpt.Space
	Ring       Ring
	State      State
	USERD      uint64 // its address
	In         shadowpt.Target
	Engine     Engine // the first of its runlist
	Owner      uint8
	Keep       int
	Privileged bool // it reaches pages that are only for drivers
	// Events receives what happens to the channel, one call at a time, from any goroutine. It must not
	// call the card. A Fault ends the channel.
	Events ChannelEvents
}

// DescribedChannel is a channel made by OpenChannel. What it may be asked means what it does of a Channel.
type DescribedChannel interface {
	Enable(on bool)
	Doorbell(put uint32)
	Running() bool
	Quiet() bool
	State() State
	// Close ends the channel, and returns when it uses no memory any more: at once if it is not Running.
	Close()
}

package card

import "time"

// Engines is how many engines NV_PFIFO_ENGINE_STATUS counts.
const Engines = 6

// Use is what a card did for a channel since the channel was bound.
type Use struct {
	// Ended is how many entries of the ring have ended, with all that they made the
	// engines do. It is never ahead of that, as GP_GET is, which says what was
	// fetched.
	Ended uint64
	// Busy is how long each engine worked for the channel, by the card's clock. It
	// has all that was done for the entries in Ended.
	Busy [Engines]time.Duration
	// Idle says that the channel may run, that nothing of it is under way, and that
	// it has fetched all up to its GP_PUT.
	Idle bool
	// Running says that the channel is on a PBDMA.
	Running bool
	// Underway says that an entry was fetched and has not ended. It is not known of
	// a channel that runs.
	Underway bool
	// Barred says that the channel does not go on by itself: it waits for a
	// semaphore, for software, or for an engine that stands still, or it has
	// faulted, or it is stopped or on no runlist.
	Barred bool
}

// Meter is a card that says what it did for each channel, which is what its time
// can be shared by.
//
// A card of silicon has no such registers, but what they would be made of. Ended
// and the end of each entry's work come from a semaphore with a time that is
// released behind the entry: the driver of the card forwards each through a ring of
// its own, as a call of the guest's entry and the release. Busy is from that time to
// the one before on the same engine, or from the time that the engine's microcode
// writes when it switches to the channel. Idle, Running and Barred are bits 28 to
// 24 of NV_PCCSR_CHANNEL. The release raises the non-stall interrupt.
type Meter interface {
	Use(channel uint8) Use
	// OnUse has f called whenever Use of any channel may have changed, but for the
	// time of one that runs; nil ends it. f is called with the card's lock held: it
	// must not block, and not call the card.
	OnUse(f func())
}

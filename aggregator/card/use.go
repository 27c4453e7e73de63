package card

import "time"

// Use is the use that a channel made of the card since it was bound.
type Use struct {
	// Ended is the number of entries of the ring whose work has ended, engines included.
	// GP_GET may be ahead of it, because it counts fetched entries.
	Ended uint64
	// Busy is how long each engine worked for the channel, by the card's clock. It
	// has all that was done for the entries in Ended.
	Busy [MaxEngines]time.Duration
	// Idle means that the channel may run, that no work of it is under way, and that it has
	// fetched all entries up to its GP_PUT.
	Idle bool
	// Running means that the card reads the channel's ring.
	Running bool
	// Underway means that an entry was fetched and has not ended. It is unknown for a
	// running channel.
	Underway bool
	// Barred means that the channel cannot continue by itself: it waits for a semaphore,
	// for software, or for a stopped engine, or it has faulted, or it is stopped or on no
	// runlist.
	Barred bool
}

// Slices is a card that shares its engines among the shares by itself, in time slices.
type Slices interface {
	// SetWeight sets how much of an engine the share gets while others want it too: the weights are
	// relative, and 1 is usual.
	SetWeight(share Share, weight float64) error
}

// Meter is a card that reports the use of each channel, so that a scheduler can share the
// card's time.
//
// A silicon card has no such counts. Package driver takes them from other registers, with an
// error that its meter documents.
type Meter interface {
	Use(channel uint32) Use
	// OnUse has f called whenever Ended, Idle, Underway or Barred of any channel may have
	// changed, and when a stopped channel has left the card; nil ends it. It does not tell
	// of the time of a channel that runs, nor of the turns that channels take on the card.
	// f is called with the card's lock held: it must not block, and not call the card.
	OnUse(f func())
}

// Package aggregator shares one card among many guests.
//
// The aggregator drives a card.GPU and gives each [Guest] extents of its memory. It reads what a
// guest says about channels, addresses and memory once, checks and translates it field by field,
// and only then passes it to the card. The card has only pages that package shadowpt checked.
//
// A Guest is one virtual GPU's share. A [Face] shows it to a virtual GPU of package devmodel as a chip
// has it, and describes what the guest asks for in words of no chip. Its parts are rooms, packages of
// their own: memory and window (its memory and its views of it), channels (those of the card that
// execute its own), shadow (its shadow page tables), report (what it is told). The Guest joins them: it
// collects requests, and a worker executes them.
//
// # What waits where
//
// Calls from a trap do not wait for the card, except that a reset waits, with a bound, until
// channels have left it, and that an access to memory waits while pages of the guest's own move.
// Window accesses are copied immediately. Control operations (bind,
// runlist, preempt, invalidate) are recorded in GuestState.Pending; the worker executes them in rounds
// and waits for the card with a bound. Until then the registers that poll for completion read
// pending. Doorbells and channel stops reach the card in the trap if nothing is pending before them
// and no deferred invalidate must be flushed.
//
// The card's driver shares waits: an invalidate, a runlist or a preempt serves all guests that
// asked before it began, so a guest waits for the one under way and for the next. Each is bounded.
// A guest whose channel does not leave the card in time is quarantined, and its neighbours do not
// wait for it again.
//
// # Goroutines
//
// Two per guest, from AddGuest to Remove: the worker [Guest.run] talks to the card, and package
// report delivers. They are two because a round may wait for the card, and completions must not wait
// for it. The card and package gate have goroutines of their own.
//
// # Locks, in the order they are taken
//
//  1. The virtual GPU's lock (package devmodel): traps hold it when they call a Guest. Inside it, the
//     lock of what a client maps (package aperture), which the worker takes alone, and the face's own,
//     which the worker takes before Guest.mu.
//  2. Aggregator.adding: one AddGuest at a time. The lock under which the card delivers the events
//     of channels. Never in a trap.
//  3. Guest.mu: requests, the channel table, the quarantine.
//  4. memory.Memory's: pages move (write side), or are accessed by the aggregator (read side). The
//     mover waits, with it held, for the steps of the guest's own channels.
//  5. The gate's lock: the scheduler, and each channel's GP_PUT.
//  6. Leaves, each for a moment: Aggregator.mu (the table of guests), those of channels, shadow, report,
//     dma and window, of the card's driver and of the card.
package aggregator

// Package aggregator shares one card among many guests.
//
// The aggregator is the card's driver: it brings the card up, keeps a part of
// its memory for itself (instance blocks, runlists, page tables, USERD), and
// gives each [Guest] extents of the rest. What a guest says about channels,
// addresses and memory is read once, checked, translated field by field, and
// only then told to the card. The card walks only tables that package shadowpt
// built.
//
// A Guest is one virtual GPU's share: its memory and windows into it, its
// channels, its page-table shadows, its window of the card's bus addresses. It
// satisfies what package devmodel needs from the card behind a virtual GPU.
//
// # What waits where
//
// Calls that come from a trap never wait: windows are copied at once, and
// control operations (bind, runlist, preempt, invalidate) are queued for the
// guest's own goroutine, which talks to the card and waits for it with a bound.
// Until it has, the registers that ask "are you done" answer no. Doorbells and
// channel stops go to the card at once when nothing is queued before them.
//
// # Goroutines
//
// One per guest ([Guest.work]), from AddGuest to Remove; one per aggregator
// ([Aggregator.route]) that turns the card's interrupts into the guests' own,
// from New to Close.
//
// # Locks, in the order they are taken
//
//  1. The virtual GPU's own lock (package devmodel). Calls into a Guest come
//     with it held; events are delivered to it with no lock of ours held.
//  2. Guest.mu: the guest's queue, its channel table, what is pending.
//  3. Aggregator.mu: the table of guests and of physical channels, memory.
//  4. control.mu: one sequence of register writes to the card, and waiting for
//     it. Taken by guests' goroutines only, never in a trap.
//  5. bus.mu (read side): the guests' DMA maps, during one step of the card.
//
// The windows of a Guest (BAR1, BAR3, PRAMIN) are guarded by the virtual GPU's
// lock alone.
package aggregator

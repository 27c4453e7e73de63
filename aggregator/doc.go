// Package aggregator shares one card among many guests.
//
// The aggregator drives a card.GPU and gives each [Guest] extents of its memory. It reads
// what a guest says about channels, addresses and memory once, checks and translates it field
// by field, and only then passes it to the card. The card walks only tables that package
// shadowpt built.
//
// A Guest is one virtual GPU's share: its memory and windows into it, its channels, its
// shadow page tables, its window of the card's bus addresses. It implements the card
// behind a virtual GPU of package devmodel.
//
// # What waits where
//
// Calls from a trap never wait. Window accesses are copied immediately. Control operations
// (bind, runlist, preempt, invalidate) are recorded in Guest.pending; the guest's worker
// executes them in rounds and waits for the card with a bound. Until then the registers
// that poll for completion read pending. Doorbells and channel stops reach the card in the
// trap if nothing is pending before them and no deferred invalidate must be flushed; so do
// preempts and runlists that only remove channels, if the card completes them immediately
// (see fastpath.go). An invalidate of a space in which nothing runs may be deferred (see
// shadowing.go).
//
// # What one guest can make another wait for
//
// The card's driver shares waits: an invalidate, a runlist or a preempt serves all guests
// that asked before it began, so a guest waits for the one under way and for the next.
// Each is bounded. A guest whose channel does not leave the card in time is
// quarantined, and its neighbours do not wait for it again. The memory map of one guest is
// locked during one look-up only (see package dma). An invalidate names its guest's own
// directories, so that translations of others stay cached. Every guest has its own memory
// for page tables and its guaranteed channels.
//
// When a guest unbinds a channel, it first gets all reports of the card about it. Then the
// instance block and the number may be reused.
//
// # Goroutines
//
// Two per guest, from AddGuest to Remove: the worker [Guest.work] talks to the card, and
// [Guest.deliverEvents] reports events, so that a guest that takes events slowly does not
// delay others. The card and package gate have goroutines of their own.
//
// # Locks, in the order they are taken
//
//  1. The virtual GPU's lock (package devmodel). Callers of a Guest hold it; events are
//     delivered with no lock of ours held. Inside it, the lock of the mapped windows
//     (package aperture), which the worker takes with none.
//  2. Aggregator.adding: one AddGuest at a time. The lock under which the card delivers the
//     events of channels. Never in a trap.
//  3. Guest.mu: requests, the channel table, undelivered events. The goroutine that fills
//     an empty Guest.current under it (the worker, or a trap on the fast path) owns the
//     state of a round until it empties it again. Only the worker waits for that.
//  4. Guest.moving: pages of the guest's VRAM move (write side), or are read or written by
//     the aggregator (read side). The mover waits, with it held, for the steps of the
//     guest's own channels.
//  5. The gate's lock: the scheduler, and each channel's GP_PUT. The card's lock is taken in
//     it for a doorbell or one look; none of the following ever is.
//  6. Aggregator.mu: the table of guests, and which channels of the card each has.
//  7. Locks of the card's driver: for a moment, never while waiting for the card.
//  8. The locks of package dma: one change of the guest's memory, one look-up, one copy.
//
// The windows of a Guest (BAR1, BAR3, PRAMIN) are guarded by the virtual GPU's lock alone.
// Shadows, their tracker except its Watch, and resources waiting to be freed belong to the
// worker.
//
// # Differences from a card of one's own
//
// Class state that a driver writes through PGRAPH's method port (404488, 40448c) while it
// creates its first graphics context stays in the guest's own registers: the card has one
// such port, and its values would apply to everybody. A virtual GPU's channels start from
// the engine's state after power-on.
//
// NV_PFIFO_MMU_FAULT_TRIGGER ends the channel that NV_PFIFO_ENGINE_STATUS shows or showed
// last. A real card ends the engine's last channel even if nobody read that register.
package aggregator

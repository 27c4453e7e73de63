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
// channel stops go to the card at once when nothing is queued before them,
// nothing is owed, and, for doorbells, little was mapped that had to be looked at; so do a preempt of a channel that may have run, and a runlist that only
// takes channels off, if the card does them without a wait, a few for each round that asks the card
// (see atonce.go). An invalidate of a space in which nothing runs may
// be put off until something would (see shadowing.go).
//
// # What one guest can make another wait for
//
// Waits for the card are shared: an invalidate, a runlist or a preempt serves
// everybody who asked before it began, so a guest waits for the one under way
// and for the next, whatever the others ask for. Each is bounded. A guest whose
// channel does not leave the card in time is put into safe mode; its neighbours
// do not wait for it again. DMA maps are touched one guest's at a time, for one
// look-up (see bus). An invalidate names its guest's own directories, so that the
// card goes on knowing the others' translations. Every guest has its own memory for page tables, and channels
// that it can count on, and the card keeps the states of its unbound channels apart
// from everybody else's.
//
// A guest that no longer wants a channel gets what the card reported of it up to
// then; only after that do its instance block and number go to somebody else.
//
// # Goroutines
//
// Two per guest, from AddGuest to Remove: [Guest.work] talks to the card and
// [Guest.tell] tells the guest what happened, so that a guest that is slow to
// listen delays nobody. One per aggregator ([Aggregator.route]) that turns the
// card's interrupts into the guests' own, from New to Close. That of what a client
// has mapped (package homes) lives as long as the client.
// With [Options.Scheduler] one more ([gate.run]), from New to Close: it asks the card
// what it did and forwards what is next.
//
// # Locks, in the order they are taken
//
//  1. The virtual GPU's own lock (package devmodel). Calls into a Guest come
//     with it held; events are delivered to it with no lock of ours held. Inside it,
//     the lock of what its client has mapped (package homes), which Guest.work takes
//     with none, for doorbells that were not gathered for.
//  2. Aggregator.routeMu: one look at the card's interrupts. Never in a trap.
//  3. Guest.mu: what is to be done, the channel table, what is to be told. Who fills
//     Guest.doing under it, while it is empty, has what a round has until it is empty again:
//     Guest.work, or a trap that does a little in its place (see atonce.go). No lock is held
//     for that; Guest.work alone waits for it.
//  4. Guest.moving: pages of the guest's VRAM change their homes (write side), or are
//     read or written by us (read side). Who moves pages waits, with it held, for
//     the steps of the guest's own channels that are under way on the card.
//  5. gate.mu: the scheduler, and where each channel's GP_PUT is. The card's lock is
//     taken in it, for a doorbell or one look; never any of the next ones.
//  6. Aggregator.mu: the table of guests and of physical channels, memory.
//  7. turn.mu and control.mu: for a moment, never while the card is waited for.
//  8. The guest's own pin of its memory (card.Bus.Acquire), for one look-up or
//     one copy, and bus.steps (read side), during one step of the card.
//
// The windows of a Guest (BAR1, BAR3, PRAMIN) are guarded by the virtual GPU's
// lock alone. Shadows, their tracker but for its Watch, and what waits to be given
// back, belong to Guest.work; the guest's runlist to whoever has filled Guest.doing.
//
// # What a guest's own driver does differently here
//
// The class state that a driver writes through PGRAPH's method port (404488,
// 40448c) while it makes its first graphics context stays in the guest's own
// registers: the card has one such port, and what it starts new contexts from
// would be everybody's. A virtual GPU's channels start from the engine's own
// state after power-on.
//
// NV_PFIFO_MMU_FAULT_TRIGGER ends the channel that NV_PFIFO_ENGINE_STATUS shows or
// showed last; a card of one's own ends the engine's last channel also if nobody
// ever looked.
package aggregator

// Package aperture keeps what a guest has mapped of its GPU in step with the GPU's memory, so that
// the guest reaches it without a trap.
//
// A guest's machine maps windows (BAR3, BAR1 beyond the poll area, PRAMIN) once, when it attaches, and
// never gives them back. A window is a memory file; its page i is what the guest sees at the window's
// page i, and is called a slot. So a page of VRAM is moved to where the guest sees it: its home is a
// slot, or the card's own memory (inCard), and the card finds it there (card.Card's Relocate).
//
// # What is shown where
//
// A [Set] is told of what can change what a window shows: the BARs' block registers, the invalidates
// of their tables, PRAMIN's register. It reads the tables again (tables.go), notes which slot shows
// which page (slots.go), and moves the pages whose home has to be another one (moves.go).
//
// A page that several slots show is in the window with the highest priority: BAR3 before BAR1 before
// PRAMIN. The other slots are aliases (alias.go). An alias has a merge base: the bytes that it had when
// it was last equal to its home. Where memory is ordered, what either side changed since then goes to
// the other. Memory is ordered by doorbells, by accesses of registers whose rows say so
// (mmio.Ordering) and by interrupts. If the guest stores to the same byte in two slots with nothing of
// that between, the home's byte counts.
//
// The guest may be storing while a page moves from one slot to another. No such store is lost: the
// move copies nothing, and only swaps which slot is the home and which the alias. See Set.adopt.
//
// A slot that shows nothing of VRAM reads as zeros at first, and keeps what the guest writes until a
// page comes there. A slot that loses its page is cleared.
//
// # What is not exact
//
// Slots that show system memory, a page for the supervisor alone, or VRAM while the BAR has no tables
// have no page: they read as zeros, and what the guest stores there is lost. So do slots beyond the
// limits of [Config]. Read-only pages can be written. An alias that a guest polls, and that an engine
// writes, follows with the next register access. Each is counted by its reason ([Stats]). A guest that
// needs such slots must have its machine map less ([MapNone], or a [Map] without the window).
//
// # Bounds
//
// One register access moves Limits.Moves pages at most; a write of PRAMIN's register moves what PRAMIN
// shows and showed. Where the limit on runs makes a page take the rest of its run along, that is added.
// The guest sees an invalidate of more as not yet done (Pending). Flushing compares at most
// Limits.Aliases pages. Runs bound the mappings of the process: a run takes two.
//
// # Locks and goroutines
//
// Set.mu guards a Set. It is taken inside the lock under which the owner's guest is served, and held
// while pages move; what the owner does in Owner.Quiesce and Owner.Relocate is inside it. MemoryBarrier
// takes it without that lock too. There are no goroutines.
package aperture

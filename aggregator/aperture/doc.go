// Package aperture shows a guest's VRAM in memory that the guest's machine maps, so that the guest
// accesses it without a trap.
//
// A guest's machine maps windows (BAR3, BAR1 beyond the poll area, PRAMIN) once, when it attaches,
// and never gives them back. A window is a memory file. Its page i is called a slot: the guest sees
// it at the window's page i. The bytes of a page of VRAM move to where the guest sees them: the
// backing of a page is a slot, or the card's own memory (inCard). The card uses that backing
// (card.Relocator).
//
// # Which slot shows which page
//
// The owner reports to a [Mapper] all writes that can change a window: the BARs' block registers,
// invalidates of their tables, PRAMIN's register. The Mapper reads the tables again (tables.go),
// records which slot shows which page (slots.go), and moves pages whose backing must change
// (moves.go).
//
// If several slots show a page, the one in the window with the highest priority backs it: BAR3
// before BAR1 before PRAMIN. The other slots are aliases (alias.go). An alias has a merge base: the
// bytes that it had when it was last equal to its backing slot. A memory barrier merges the changes
// of both sides since then. Doorbells, interrupts and accesses of registers whose rows say so
// (mmio.Barrier) are memory barriers. If the guest stores to the same byte in two slots between two
// barriers, the backing slot's byte wins.
//
// The guest may store while the backing of a page changes from one slot to another. No such store
// is lost: the move copies nothing, and only exchanges the roles of backing slot and alias. See
// Mapper.promote.
//
// A slot that shows no page of VRAM first reads as zeros, and keeps what the guest writes until it
// shows a page. A slot that loses its page is cleared.
//
// # What is not exact
//
// Slots that show system memory, a supervisor page, or VRAM while the BAR has no tables have no
// page: they read as zeros and lose stores. So do slots beyond the limits of [Config]. Read-only
// pages can be written. If a guest polls an alias that an engine writes, it sees the change after
// the next register access. Each case is counted by its reason ([Stats]). A guest that needs such
// slots must have its machine map less ([MapNone], or a [Map] without the window).
//
// # Bounds
//
// One register access moves Limits.Moves pages at most. A write of PRAMIN's register moves the
// pages that PRAMIN showed and shows. If the limit on runs forces a whole run to move, its pages
// are added. For a larger change, the guest sees its invalidate as incomplete (Pending). A flush
// compares at most Limits.Aliases pages. Runs bound the mappings of the process: a run takes two.
//
// # Locks and goroutines
//
// Mapper.mu guards a Mapper. It is taken inside the lock of the owner's guest, and held while pages
// move, so Owner.Quiesce and Owner.Relocate run inside it. MemoryBarrier also takes it without the
// guest's lock. There are no goroutines.
package aperture

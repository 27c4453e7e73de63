// Package homes keeps what a guest has mapped of its GPU in step with the GPU's
// memory, so that the guest reaches it without a trap.
//
// A guest's machine maps windows (BAR3, BAR1 with or without the poll area, PRAMIN) once,
// when it attaches, and never gives them back. A window is a memory file: its page
// i is what the guest sees at the window's page i. So it is not the window that
// follows the memory, but the memory that follows the window: each page of VRAM
// has a home, in the card's own memory or at the place of a window that shows it,
// and the card reaches it there (card.Card's Home).
//
// # What is shown where
//
// A [Set] is told of what can change what a window shows: the BARs' blocks, the
// invalidates of their tables, PRAMIN's register. It reads the tables again
// (tables.go; what did not change since the last time is only compared), notes
// which place shows which page (planner, plan.go), and moves the pages whose
// home has to be another one (moves.go).
//
// A page that several places show lives in the strongest window: the poll
// area, if it is mapped, before BAR3 before BAR1 before PRAMIN. In the same window it stays where it is. The other places
// are replicas (replica.go): where memory order is defined, and now and then between,
// what a place changed since they were last equal goes to all others. Order is defined
// by accesses of registers whose rows say so (mmio.Ordering: the flush of BAR writes,
// invalidates, what moves a window, what starts or stops a channel, what says that
// something is done) and by interrupts. A guest that puts one of them
// between accesses that depend on each other, as a driver does for the hardware, sees
// one memory; one that does not may see the old bytes for a moment. Of pages of the poll
// area that holds for what USERD has; the rest of them follows between.
//
// A doorbell orders memory for the card, not for the guest: what was written before GP_PUT
// was is where the engines find it before anything is fetched that GP_PUT names (share.go).
// It is not the trap that waits for that, where it is much. What the home has got meanwhile is not
// looked at: bytes stored there, and after a doorbell at a replica, with nothing else between, are
// the home's in the end, and are counted.
//
// A page that is only shown read-only lives in the card's own memory. Its places are
// replicas that take and never give: what the guest stores there is undone when they
// next agree, and counted.
//
// A place that shows nothing of VRAM is scratch: it reads as zeros at first, and
// keeps what the guest writes until a page moves in, over it. A place that loses
// its page is cleared: it never shows bytes of what was there.
//
// # What cannot be exact
//
// Places that show system memory, a page that only the supervisor may see, or VRAM
// while the BAR has no tables, stay scratch. So do places beyond the limits of [Config], and
// those whose pages had to go home so that the limits hold. They are mapped all the same:
// nothing in them traps, they show zeros, and what the guest stores there is lost to the
// memory. Each is counted by its reason ([Stats]). The remedy for a guest that needs such
// places is to have its machine map less ([MapNone], or a [Map] without the window).
//
// # Locks and goroutines
//
// Set.mu guards a Set. It is taken inside the lock under which the owner's
// guest is served, and held while pages move; what the owner does in
// Owner.Still and Owner.Home is inside it. One goroutine per Set, from New to
// Close, keeps replicas fresh while there are any; it takes Set.mu without that lock, as do
// GatherAll and what is done within bounds (share.go), so what the owner does in ReadTable
// and SameTable, of VRAM, must not need it.
package homes

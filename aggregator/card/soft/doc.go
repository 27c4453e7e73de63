// Package soft is the software GF100: a card that executes in memory what the
// real one executes in silicon, behind the same registers.
//
// A [Card] owns its VRAM (a sparse memory file), its register space, and three
// PBDMAs. What a driver builds in memory is read as the hardware reads it:
// instance blocks, page tables, runlists, USERD and GPFIFO rings lie in VRAM or
// in system memory, and nothing reaches the card but through its BARs and its
// DMA window.
//
// # The way of a submission
//
// A write of GP_PUT through BAR1 marks the channel as ready and returns. A
// PBDMA takes the channel, walks its page tables, decodes its pushbuffer and
// hands methods to the engines (package engine) in bounded steps. After each
// step it delivers what the step caused: non-stall events, faults, semaphores
// that others wait for. Everything that a channel is in the middle of lies in
// its [channel] value, so that it can be stopped between two steps.
//
// # Goroutines
//
// Three PBDMA goroutines, started by New and ended by Close. Timer callbacks
// (PTIMER alarm, retries of failed semaphore acquires) are stopped by Close.
//
// # Locks, in the order they are taken
//
//  1. Card.mu guards the register space, the face, the configuration space, the
//     BAR windows, the channel slots and the run queue. Every guest access runs
//     under it; nobody waits for anything while holding it.
//  2. Card.hostMu (read side) keeps the host attached during one step of an
//     engine, or during one access that reaches system memory. A step never
//     takes Card.mu: its consequences are delivered after it.
//  3. The host's own pin (card.Bus.Acquire), inside hostMu.
//  4. engineLock, one per engine, for one Method or Step call.
//
// A channel's execution state belongs to the PBDMA that runs it, and to
// Card.mu while none does.
package soft

// Package soft is the software GF100: a card that executes in memory what the
// real one executes in silicon, behind the same registers.
//
// A [Card] owns its VRAM (a sparse memory file), its register space, and three
// PBDMAs. It reads instance blocks, page tables, runlists, USERD and GPFIFO rings from
// VRAM or system memory, as the hardware does. Nothing reaches the card except through
// its BARs and its DMA window.
//
// # The way of a submission
//
// A write of GP_PUT through BAR1 marks the channel as ready and returns. A
// PBDMA takes the channel, walks its page tables, decodes its pushbuffer and
// hands methods to the engines (package engine) in bounded steps. After each
// step it delivers what the step caused: non-stall events, faults, semaphores
// that others wait for. All state of a channel is in its
// [channel] value, so it can be stopped between two steps.
//
// # Where memory lives
//
// The card reaches VRAM as one flat slice. A page that lives in somebody's shared
// memory ([Card.Home]) is mapped there in its place, so that nobody who uses it has
// to ask where it is.
//
// # When something goes wrong
//
// A channel's mistakes are reported as the hardware does, and stop as much as
// they do there. An MMU fault ends the channel; a slot of 002800 that is taken
// makes the next fault wait, not vanish. A word, entry or method that the host
// part cannot use keeps the channel on its PBDMA until the interrupt is
// acknowledged. A method that an engine refuses makes the engine stand still, and
// with it every channel that comes to it, until the driver lets it go on.
//
// The state of unbound channels is saved, within a limit, under a token in RAMFC; see
// contexts. A reset of the card discards it, with the class state of the golden
// context: after a suspend to memory, channels start anew.
//
// # Goroutines
//
// Three PBDMA goroutines, started by New and ended by Close. Timer callbacks
// (PTIMER alarm, retries of failed semaphore acquires) are stopped by Close.
//
// # Locks, in the order they are taken
//
//  1. Card.attachMu makes attaching and detaching one at a time.
//  2. Card.mu guards the register space, the face, the configuration space, the
//     BAR windows, the channel slots, the run queue and the saved contexts. Every
//     guest access runs under it. Nobody waits for anything while holding it; the
//     condition variables of the run queue and of Reset give it up.
//  3. The lock of the client's windows (package aperture). It is held while pages
//     move, and in it Card.still, one for each channel: a step holds the read side,
//     who moves pages that the channel may use the other. That is a wait for the
//     steps under way, which are bounded and never take Card.mu.
//  4. Card.hostMu (read side) keeps the host attached during one step of an
//     engine, or during one access that may reach system memory. A step never
//     takes Card.mu: its consequences are delivered after it.
//  5. The host's own pin (card.Bus.Acquire), inside hostMu.
//  6. engineSlot.mu, one per engine, for one Method, Inline or Step call.
//  7. vram.mu: one change of, or look at, where pages live at a time. Which pages have
//     been looked at for holes (looked) is changed without it, by anybody, bit by bit.
//  8. invalidates.mu, for a moment, under any of them.
//
// A channel's execution state (vm and exec) belongs to the PBDMA that runs it,
// and to Card.mu while none does.
//
// VRAM and guest memory are shared with engines and guests without a lock, as on
// a bus: naturally aligned words are stored whole, nothing else is promised.
package soft

// Package soft is the software card: a GF100 that executes in memory what the real one
// executes in silicon, behind the same registers. It also runs the channels of a GH100.
//
// A [Card] owns its VRAM (a sparse memory file), its register space, and three
// PBDMAs. It reads instance blocks, page tables, runlists, USERD and GPFIFO rings from
// VRAM or system memory, as the hardware does. Nothing reaches the card except through
// its BARs and its DMA window.
//
// # The path of a submission
//
// A write of GP_PUT through BAR1 marks the channel as ready and returns. A
// PBDMA takes the channel, walks its page tables, decodes its pushbuffer and
// hands methods to the engines (package engine) in steps, which end by the clock.
// After each step it delivers what the step caused: non-stall events, faults, semaphores
// that others wait for. All state of a channel is in its
// [ChannelState], so it can be stopped between two steps.
//
// A channel keeps its PBDMA, and the engines that it called, for a slice of time; then the
// next one has them. A step waits for nobody: a channel whose engine serves another one
// leaves its PBDMA until it is given the engine.
//
// # Kinds of channels
//
// A channel's class says what its ring, its host methods, its address space and its classes of
// objects are: a row in kind.go. A GF100's channel (906f) is bound by registers. A GH100's (c86f) is
// described by [Card.OpenChannel]: it has no instance block and no registers, and whoever opened it
// gets its events and faults. A fault, a word, entry or method that the card cannot use ends it, and
// neither traps an engine nor holds a PBDMA. A reset of the card ends it, too, and tells. Both kinds share
// numbers, PBDMAs, engines, memory and saved states.
//
// # Where memory lives
//
// The card reaches VRAM as one flat slice. A page that is backed by shared memory
// ([Card.Relocate]) is mapped at its address in that slice.
//
// # Errors
//
// Errors of a channel are reported as by the hardware, and stop the same units. An MMU
// fault ends the channel; if its slot of 002800 is in use, the fault waits. A word, entry
// or method that the host part cannot use keeps the channel on its PBDMA until the
// interrupt is acknowledged. A method that an engine refuses traps the engine, which stalls
// every channel that uses it until the driver resumes it.
//
// The state of unbound channels is saved, within a limit, under a token in RAMFC or in a
// [card.State]; see [Contexts]. A reset of the card keeps it, with the class state of the golden context, so that
// a guest that was suspended to memory finds its channels. Another host finds none of it.
//
// # Goroutines
//
// Three PBDMA goroutines, started by New and ended by Close. A step that executes a program on
// several processors has a goroutine for each, and waits for them. Timer callbacks (PTIMER
// alarm, retries of failed semaphore acquires) are stopped by Close.
//
// # Locks, in the order they are taken
//
//  1. Card.attachMu serializes attaching and detaching.
//  2. Card.mu guards the register space, the face, the configuration space, the BAR
//     windows, the channel slots, the run queue and the saved contexts. Every guest access
//     runs under it. No goroutine waits while it holds it; the condition variables of the
//     run queue and of Reset give it up.
//  3. Card.stepping, one lock per channel: a step holds the read side, QuiesceChannels
//     takes the write side. That waits for the steps under way, which are bounded and
//     never take Card.mu.
//  4. Card.owners, one lock per owner of channels (read side), keeps the host attached and
//     the owner's memory mapped during one step, or during one access of the card itself.
//     UnmapDMA takes the write side of the owners whose memory it is. A step never takes
//     Card.mu: its consequences are delivered after it.
//  5. vram.mu guards the backing of pages. The bits of vram.looked are atomic and need
//     no lock.
//  6. invalidates.mu, for a moment, under any of them. So is the lock of reductions (package engine).
//
// The lock of a launch's step (package engine) comes after 4: processors hold it while they look memory up.
//
// A channel's execution state (vm and exec) belongs to the PBDMA that runs it,
// and to Card.mu while none does.
//
// VRAM and guest memory are shared with engines and guests without a lock, as on a bus:
// only naturally aligned words are stored atomically.
package soft

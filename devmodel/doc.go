// Package devmodel is one virtual GPU as one guest sees it: a PCI function with
// its BARs, the register face of a GF100, and interrupts.
//
// Every register row of package gf100 has a policy. The units that are private
// state wherever they stand (PMC, PTIMER, the microcontrollers, ...) are virtual:
// a [VGPU] has its own. What concerns channels, address translation and memory
// is translated: it goes, as typed values, to the [Card] behind the virtual GPU,
// which checks it. Nothing else passes: a register that no row declares is
// storage that nobody reads.
//
// A VGPU does not know what stands behind it or before it. It declares the two
// interfaces it needs: [Card], the share of a card, and [Host], where interrupts
// go.
//
// # Locks and goroutines
//
// VGPU.mu guards everything a guest can see; every access runs under it, and so
// do the calls into Card, which never wait. Events from the card take it too.
// Host.Interrupt is called under it and must not call back. The package starts
// no goroutine but the callback of PTIMER's alarm, which Close stops.
package devmodel

// Package devmodel implements a virtual GPU as its guest sees it: a PCI function with its
// BARs, the register face of a GF100, and interrupts.
//
// Every register row of package gf100 has a policy. Units with private state (PMC, PTIMER,
// the microcontrollers, ...) are virtual: each [VGPU] has its own. Accesses that concern
// channels, address translation and memory are translated: they go as typed values to the
// [Card] behind the virtual GPU, which checks them. Nothing else reaches the card: a
// register that no row declares is plain storage without effect.
//
// The package declares the two interfaces that it needs: [Card], the share of a card, and
// [Host], the receiver of interrupts.
//
// # Locks and goroutines
//
// VGPU.mu guards everything that a guest can see. Every access runs under it, and so do the
// calls into Card, which never wait. Events from the card take it too. Host.Interrupt is
// called under it and must not call back. The only goroutine is the callback of PTIMER's
// alarm, which Close stops.
package devmodel

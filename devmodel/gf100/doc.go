// Package gf100 is a virtual GF100 as one guest sees it: a PCI function with its
// BARs, registers and interrupts.
//
// Every register row of package mmio/gf100 has a policy. Units with private state (PMC, PTIMER,
// the microcontrollers, ...) are virtual: each [VGPU] has its own. Accesses that concern
// channels, address translation and memory are translated: they go as typed values to the
// [Card] behind the virtual GPU, which checks them. Nothing else reaches the card: a
// register that no row declares is plain storage without effect.
//
// # Locks and goroutines
//
// The lock is that of devmodel.Function. The only goroutine is the callback of PTIMER's alarm,
// which Close stops.
package gf100

// Package gf100 is the chip as data: the registers and in-memory structures of
// NVIDIA's GF100 (Fermi, chipset 0c0), and the behaviour of those units that
// are private state wherever they stand, in front of a card or in front of a
// guest.
//
// One file holds one hardware unit: its register rows and, for a private unit,
// the code behind them. The rows of PFIFO, PCCSR, PPBDMA and PMMU are declared
// here, and bound by whoever gives them a meaning: the software card executes,
// a virtual GPU translates.
//
// The package keeps no state of its own and takes no locks: a [Face] belongs to
// the owner of the space it is bound to and is guarded by that owner's lock.
package gf100

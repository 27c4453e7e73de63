// Package gf100 is the chip as data: the registers and in-memory structures of
// NVIDIA's GF100 (Fermi, chipset 0c0), and the behaviour of those units that
// are private state wherever they stand, in front of a card or in front of a
// guest.
//
// One file holds one hardware unit: its register rows and, for a private unit,
// the code behind them. [Blocks] and [Apertures] are all of it. The rows of
// PFIFO, PCCSR, PPBDMA and PMMU are declared here, and bound by their owner:
// the software card executes them, a virtual GPU translates them. All
// others belong to a [Face]: interrupt tree, clock, sensor, fuses, pins, and the
// microcontrollers, whose mailboxes answer as the microcode would that nouveau
// uploads to them.
//
// Names: NVIDIA's where its manuals or headers name the register, else those of
// envytools' rnndb, with UNK and the offset where rnndb knows the unit but not
// the register. A row marked Stub is stored and nothing more.
//
// [ConfigSpace] is the function's PCI configuration space, and [Ablations] says
// for each behaviour what goes wrong without it.
//
// A Face and a ConfigSpace hold all state there is, belong to the owner of the
// space they are bound to, and are guarded by that owner's lock. The package
// takes no locks and starts no goroutines.
package gf100

// Package gf100 describes NVIDIA's GF100 (Fermi, chipset 0c0) as data: its registers and
// in-memory structures. It also has the behaviour of units whose state is private in both a
// card and a virtual GPU.
//
// One file holds one hardware unit, or a few small ones: the register rows and, for a private
// unit, the code behind them. [Blocks] and [Apertures] list all. The rows of PFIFO, PCCSR, PPBDMA
// and PMMU are declared here, and bound by their owner: the software card executes them, a virtual
// GPU translates them. All others belong to a [Face]: interrupt tree, clock, sensor, fuses,
// pins, and the microcontrollers, whose mailboxes answer as nouveau's microcode would.
//
// Names: NVIDIA's where its manuals or headers name the register, else those of
// envytools' rnndb, with UNK and the offset where rnndb knows the unit but not
// the register. A row marked Stub is stored and nothing more.
//
// A Face holds all state, belongs to the owner of the space it is bound to, and is guarded by
// that owner's lock. The package takes no locks and starts no
// goroutines.
package gf100

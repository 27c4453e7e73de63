// Package shadowpt implements GPU page tables: their formats, look-up of an address ([Format.Walk],
// and [TLB], which caches), and what a card is to have of the tables that a guest wrote ([Shadow]).
//
// A [Format] is data: levels of directories and two kinds of page tables. [Fermi] has one
// directory, [Hopper] five levels. What a Shadow finds goes to the card as [Change]s, which know no
// format: a card encodes them as it likes.
//
// A Shadow is rebuilt from all of the guest's tables, or a [Tracker] updates it at a cost
// proportional to the changes. [Policy] selects when and how.
//
// The package does no I/O of its own: it reads tables through [Memory] and [Guest], which
// the caller bounds, and has them changed through [Card]. It takes no locks and starts no
// goroutines. A TLB, or a Tracker with its Shadows, belongs to one goroutine at a time;
// only a Tracker's [Watch] may be used by any.
//
// Sources: envytools docs/hw/memory/g80-vm.rst and rnndb/memory/gf100_vm.xml, NVIDIA's dev_mmu.h
// of GH100, and nouveau's source.
package shadowpt

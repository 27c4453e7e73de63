// Package shadowpt implements the GPU page tables of Fermi: their format, look-up of an
// address ([Walk], and [TLB], which caches), and how the tables that a card walks are
// built from those that a guest wrote ([Shadow]).
//
// A 40-bit virtual address space has one directory of 8,192 entries, 128 MiB
// each. A directory entry (PDE) names up to two tables: one of 4 KiB pages and
// one of 128 KiB pages. A table entry (PTE) names a page in VRAM or in system
// memory.
//
// A Shadow is rebuilt from all of the guest's tables, or a [Tracker] updates it at a cost
// proportional to the changes. [Policy] selects when and how.
//
// The package does no I/O of its own: it reads tables through [Memory] and [Guest], which
// the caller bounds, and writes them through [Card]. It takes no locks and starts no
// goroutines. A TLB, or a Tracker with its Shadows, belongs to one goroutine at a time;
// only a Tracker's [Watch] may be used by any.
//
// Sources: envytools docs/hw/memory/g80-vm.rst and rnndb/memory/gf100_vm.xml, and nouveau's
// source.
package shadowpt

// Package shadowpt knows the GPU page tables of Fermi: their format, and how an
// address is looked up in them.
//
// A 40-bit virtual address space has one directory of 8,192 entries, 128 MiB
// each. A directory entry (PDE) names up to two tables: one of 4 KiB pages and
// one of 128 KiB pages. A table entry (PTE) names a page in VRAM or in system
// memory.
//
// The package does no I/O of its own: tables are read through [Memory], which
// the caller bounds. It keeps no state, takes no locks and starts no
// goroutines; every function may be called from anywhere.
//
// Sources: envytools docs/hw/memory/g80-vm.rst and rnndb/memory/gf100_vm.xml,
// and what nouveau writes.
package shadowpt

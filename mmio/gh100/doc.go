// Package gh100 has the registers of an NVIDIA GH100 (Hopper) as a driver sees them that leaves the
// card's work to GSP, its system processor: some 60 rows, and the units with state of their own.
//
// A driver of such a card touches few registers. FSP, the processor that guards the boot, takes one
// message and starts GSP; after that the driver talks to GSP through queues in its own memory. What
// remains in BAR0 are the doorbells, the interrupt tree, the translations to drop, and a window on
// memory.
//
// [Blocks] and [Apertures] are the rows; [Face] implements the units. No firmware runs: FSP answers
// here, and GSP's queues are the owner's, which [Face] tells when they were kicked.
//
// The package has no locks and no goroutines: the lock of the space's owner guards everything.
//
// Sources: NVIDIA's open-gpu-kernel-modules (dev_vm.h, dev_gsp.h, dev_falcon_v4.h, dev_riscv_pri.h,
// dev_fsp_pri.h of GH100) for names, nouveau's source for what a driver does with them.
package gh100

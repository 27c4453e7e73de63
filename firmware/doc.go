// Package firmware builds, parses, checks and shows VBIOS images: bytes in,
// bytes out.
//
// [Build] makes the image of a GF100 that Linux' nouveau takes without a warning. [Parse] reads any
// image: every structure it met and the findings a person should know of; [Check] asks whether a
// driver can use the image on one device; [Show] prints it.
//
// The layouts are data: a structure is a list of rows with offset, width and meaning. The builder,
// the parser and the printer use the same rows, so an offset is written down once. Offsets and
// names follow the PCI Firmware Specification (ROM header, PCIR), NVIDIA's published BIOS
// Information Table and Device Control Block documents (BIT, DCB) and envytools'
// nvbios (the rest). All fields are little endian.
//
// The package holds no microcode. The FECS, GPCCS and PMU falcons are emulated
// at their mailboxes, which are registers, so no byte of theirs is needed here.
//
// Nothing is shared: no globals are written after start, no locks, no
// goroutines. All functions may be called at the same time on different values.
package firmware

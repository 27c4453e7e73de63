// Package firmware builds, parses, checks and shows VBIOS images: bytes in,
// bytes out.
//
// A [Description] says what an image holds in types; [Build] turns it into
// bytes, [Parse] turns bytes back into an [Image] with its Description, every
// structure it met and the findings a person should know of; [Check] asks
// whether a driver can use the image on one device; [Show] prints it.
// [GF100] describes the image that Linux' nouveau takes without a warning.
//
// The layouts are data: a structure is a Go type whose fields have tags with offset, width and
// meaning. The builder, the parser and the printer read the same tags, so an offset is written
// down once. Offsets and names follow the PCI Firmware Specification (ROM header, PCIR), NVIDIA's
// published BIOS Information Table and Device Control Block documents (BIT, DCB) and envytools'
// nvbios (the rest). All fields are little endian.
//
// The package holds no microcode. The FECS, GPCCS and PMU falcons are emulated
// at their mailboxes, which are registers, so no byte of theirs is needed here.
//
// Nothing is shared: no globals are written after start, no locks, no
// goroutines. All functions may be called at the same time on different values.
package firmware

package firmware

import "fmt"

// Signatures. The first three open an image, the others its PCI data structure.
const (
	SignatureROM   = 0xaa55     // 55 aa: a PCI expansion ROM image
	signatureROM77 = 0xbb77     // 77 bb: NVIDIA's own extra images
	signatureNV    = 0x4e56     // "VN": likewise
	signaturePCIR  = 0x52494350 // "PCIR"
	signatureRGIS  = 0x53494752 // "RGIS"
	signatureNPDS  = 0x5344504e // "NPDS"
	signatureNPDE  = 0x4544504e // "NPDE"
	signatureNVGI  = 0x4947564e // "NVGI": an init-from-ROM header, before the first image on later boards
)

// Code types of a PCI ROM image (PCIR byte 14h).
const (
	CodeX86  = 0x00
	CodeEFI  = 0x03
	codeEND  = 0x70 // NVIDIA: the last of its extra images, even if the indicator differs
	codeNBSI = 0xe0 // NVIDIA: more of the first image's data
)

// indicatorLast in the PCIR and NPDE indicator byte marks the last image of the file.
const indicatorLast = 0x80

// ROMHeader opens every image. Only the first image of a VBIOS has the DCB pointer.
type ROMHeader struct {
	Signature  uint16 `json:"signature"`
	Size512    uint8  `json:"size512"`
	EntryPoint uint8  `json:"entry_point"`
	PCIR       uint16 `json:"pcir"`
	DCB        uint16 `json:"dcb"`
}

var romHeaderLayout = layout[ROMHeader]{"ROM header", 0x38, []row{
	f(0x00, 2, "Signature", "aa55 opens a PCI ROM image"),
	f(0x02, 1, "Size512", "image size in 512-byte units").as(bytes512),
	f(0x03, 1, "EntryPoint", "first byte of the x86 entry code; cb is a far return"),
	f(0x18, 2, "PCIR", "PCI data structure, from the image's start").as(pointer),
	f(0x36, 2, "DCB", "device control block").as(pointer),
}}

// romHeaderShort is the part of the ROM header that every PCI ROM image has.
const romHeaderShort = 0x1a

// PCIR is the PCI data structure of an image (PCI Firmware Specification).
type PCIR struct {
	Signature    uint32 `json:"signature"`
	Vendor       uint16 `json:"vendor"`
	Device       uint16 `json:"device"`
	DeviceList   uint16 `json:"device_list"`
	Length       uint16 `json:"length"`
	Revision     uint8  `json:"revision"`
	Class        uint32 `json:"class"`
	ImageLength  uint16 `json:"image_length"`
	CodeRevision uint16 `json:"code_revision"`
	CodeType     uint8  `json:"code_type"`
	Indicator    uint8  `json:"indicator"`
	RunTimeSize  uint16 `json:"run_time_size"`
}

var pcirLayout = layout[PCIR]{"PCIR", 0x18, []row{
	f(0x00, 4, "Signature", "structure name").as(text4),
	f(0x04, 2, "Vendor", "PCI vendor id"),
	f(0x06, 2, "Device", "PCI device id"),
	f(0x08, 2, "DeviceList", "vital product data (revision 0) or list of further device ids").as(pointer),
	f(0x0a, 2, "Length", "length of this structure"),
	f(0x0c, 1, "Revision", "revision of this structure"),
	f(0x0d, 3, "Class", "PCI class code").as(className),
	f(0x10, 2, "ImageLength", "image size in 512-byte units").as(bytes512),
	f(0x12, 2, "CodeRevision", "revision of the code, the vendor's own"),
	f(0x14, 1, "CodeType", "use of the image").as(codeTypeName),
	f(0x15, 1, "Indicator", "bit 7: last image").as(lastName),
	f(0x16, 2, "RunTimeSize", "largest run-time size in 512-byte units (revision 3)").as(bytes512),
}}

// pcirShort is as much of PCIR as an image must have: all but the last, newer field.
const pcirShort = 0x16

// NPDE is NVIDIA's extension of PCIR, which overrides size and last mark.
type NPDE struct {
	Signature   uint32 `json:"signature"`
	Revision    uint16 `json:"revision"`
	Length      uint16 `json:"length"`
	ImageLength uint16 `json:"image_length"`
	Indicator   uint8  `json:"indicator"`
}

var npdeLayout = layout[NPDE]{"NPDE", 0x0b, []row{
	f(0x00, 4, "Signature", "structure name").as(text4),
	f(0x04, 2, "Revision", "revision of this structure"),
	f(0x06, 2, "Length", "length of this structure"),
	f(0x08, 2, "ImageLength", "image size in 512-byte units, in place of PCIR's").as(bytes512),
	f(0x0a, 1, "Indicator", "bit 7: last image, in place of PCIR's").as(lastName),
}}

// className names the display classes of the PCI class code.
func className(class uint64) string {
	switch class >> 8 {
	case 0x0300:
		return "VGA controller"
	case 0x0302:
		return "3D controller"
	case 0x0380:
		return "display controller"
	}
	return fmt.Sprintf("class %02x, subclass %02x", class>>16, class>>8&0xff)
}

var codeTypeName = oneOf(map[uint64]string{
	CodeX86: "x86 BIOS", 0x01: "Open Firmware", 0x02: "PA-RISC", CodeEFI: "EFI",
	codeEND: "NVIDIA, last", codeNBSI: "NVIDIA, more data",
})

func lastName(x uint64) string {
	if x&indicatorLast != 0 {
		return "last image"
	}
	return "more follow"
}

// sum8 adds up bytes, modulo 256. The bytes of an x86 image add up to zero.
func sum8(b []byte) uint8 {
	var s uint8
	for _, x := range b {
		s += x
	}
	return s
}

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
	Signature  uint16 `json:"signature" rom:"00" means:"aa55 opens a PCI ROM image"`
	Size512    uint8  `json:"size512" rom:"02 bytes512" means:"image size in 512-byte units"`
	EntryPoint uint8  `json:"entry_point" rom:"03" means:"first byte of the x86 entry code; cb is a far return"`
	PCIR       uint16 `json:"pcir" rom:"18 pointer" means:"PCI data structure, from the image's start"`
	DCB        uint16 `json:"dcb" rom:"36 pointer" means:"device control block"`
}

var romHeaderLayout = layoutOf[ROMHeader]("ROM header", 0x38)

// romHeaderShort is the part of the ROM header that every PCI ROM image has.
const romHeaderShort = 0x1a

// PCIR is the PCI data structure of an image (PCI Firmware Specification).
type PCIR struct {
	Signature    uint32 `json:"signature" rom:"00 text4" means:"structure name"`
	Vendor       uint16 `json:"vendor" rom:"04" means:"PCI vendor id"`
	Device       uint16 `json:"device" rom:"06" means:"PCI device id"`
	DeviceList   uint16 `json:"device_list" rom:"08 pointer" means:"vital product data (revision 0) or list of further device ids"`
	Length       uint16 `json:"length" rom:"0a" means:"length of this structure"`
	Revision     uint8  `json:"revision" rom:"0c" means:"revision of this structure"`
	Class        uint32 `json:"class" rom:"0d.3 class" means:"PCI class code"`
	ImageLength  uint16 `json:"image_length" rom:"10 bytes512" means:"image size in 512-byte units"`
	CodeRevision uint16 `json:"code_revision" rom:"12" means:"revision of the code, the vendor's own"`
	CodeType     uint8  `json:"code_type" rom:"14 code" means:"use of the image"`
	Indicator    uint8  `json:"indicator" rom:"15 last" means:"bit 7: last image"`
	RunTimeSize  uint16 `json:"run_time_size" rom:"16 bytes512" means:"largest run-time size in 512-byte units (revision 3)"`
}

var pcirLayout = layoutOf[PCIR]("PCIR", 0x18)

// pcirShort is as much of PCIR as an image must have: all but the last, newer field.
const pcirShort = 0x16

// NPDE is NVIDIA's extension of PCIR, which overrides size and last mark.
type NPDE struct {
	Signature   uint32 `json:"signature" rom:"00 text4" means:"structure name"`
	Revision    uint16 `json:"revision" rom:"04" means:"revision of this structure"`
	Length      uint16 `json:"length" rom:"06" means:"length of this structure"`
	ImageLength uint16 `json:"image_length" rom:"08 bytes512" means:"image size in 512-byte units, in place of PCIR's"`
	Indicator   uint8  `json:"indicator" rom:"0a last" means:"bit 7: last image, in place of PCIR's"`
}

var npdeLayout = layoutOf[NPDE]("NPDE", 0x0b)

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

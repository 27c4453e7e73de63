package firmware

import (
	"encoding/hex"
	"slices"
)

// HexBytes are bytes that print as hexadecimal in JSON.
type HexBytes []byte

// MarshalText implements encoding.TextMarshaler.
func (b HexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(b)), nil }

// Description describes the content of one VBIOS image. A nil pointer omits the structure
// from the image, with its BIT token.
//
// Only ROM header, PCIR, BIT and DCB have fixed places, given here; Build finds room for
// the rest.
type Description struct {
	Signature    uint16 `json:"signature"`   // SignatureROM
	EntryPoint   uint8  `json:"entry_point"` // cb, a far return: there is no x86 code
	Size         int    `json:"size"`        // bytes, a multiple of 512, at most 130560
	PCIROffset   int    `json:"pcir_offset"`
	Vendor       uint16 `json:"vendor"`
	Device       uint16 `json:"device"`
	Class        uint32 `json:"class"` // 24 bits
	Revision     uint8  `json:"revision"`
	CodeRevision uint16 `json:"code_revision"`
	CodeType     uint8  `json:"code_type"` // CodeX86

	BITOffset int         `json:"bit_offset"`       // 0: no BIT, and none of the tokens below
	Info      *Info       `json:"info,omitempty"`   // 'i'
	Init      *InitTables `json:"init,omitempty"`   // 'I'
	Clocks    *Clocks     `json:"clocks,omitempty"` // 'C'
	Perf      *Perf       `json:"perf,omitempty"`   // 'P'
	Memory    *Memory     `json:"memory,omitempty"` // 'M'
	Analog    *Analog     `json:"analog,omitempty"` // 'A'
	Panels    *Panels     `json:"panels,omitempty"` // 'D'
	LVDS      *LVDS       `json:"lvds,omitempty"`   // 'L'
	TMDS      *TMDS       `json:"tmds,omitempty"`   // 'T'
	Other     []RawToken  `json:"other,omitempty"`  // tokens whose kind or version is not known here

	DCB *DCB `json:"dcb,omitempty"`
}

// ramConfigs is how many RAM configurations scripts have values for.
func (d *Description) ramConfigs() int {
	if d.Memory == nil {
		return 0
	}
	return int(d.Memory.Groups)
}

// RawToken is a BIT token of the image whose data is not understood.
type RawToken struct {
	ID      uint8    `json:"id"`
	Version uint8    `json:"version"`
	Data    HexBytes `json:"data"`
}

// Options are what GF100 images commonly differ in. The zero value gives the
// validated image.
type Options struct {
	Device     uint16 // PCI device id; 0 means 06d8, Quadro 6000
	Size       int    // bytes; 0 means 8 KiB
	MemoryType *uint8 // nil means MemoryDDR3, which spares the driver GDDR5 link training
}

// GF100 describes an image for a GF100 that nouveau of Linux 6.1, 6.12 and 7.2
// takes without a warning: no display outputs, one empty init script, DDR3.
//
// The PLL limits are of the right kind, not read off a board: drivers look for
// the entries, and use the limits only to change memory clocks.
func GF100(o Options) Description {
	if o.Device == 0 {
		o.Device = 0x06d8
	}
	if o.Size == 0 {
		o.Size = 8 << 10
	}
	memory := uint8(MemoryDDR3)
	if o.MemoryType != nil {
		memory = *o.MemoryType
	}
	return Description{
		Signature:  SignatureROM,
		EntryPoint: 0xcb,
		Size:       o.Size,
		PCIROffset: 0x40,
		Vendor:     0x10de,
		Device:     o.Device,
		Class:      0x030200,
		CodeType:   CodeX86,
		BITOffset:  0x80,
		Info:       &Info{Major: 0x70},
		Init:       &InitTables{Scripts: []HexBytes{{0x71}}},
		Clocks: &Clocks{PLLs: []PLL{
			{Type: PLLMemoryRef, Register: 0x132020, Reference: 27, Limits: PLLLimits{
				MinVCO: 400, MaxVCO: 1000, MinInput: 5, MaxInput: 100, MinM: 1, MaxM: 255, MinN: 8, MaxN: 255, MinP: 1, MaxP: 63}},
			{Type: PLLMemory, Register: 0x132000, Reference: 162, Limits: PLLLimits{
				MinVCO: 800, MaxVCO: 2000, MinInput: 25, MaxInput: 400, MinM: 1, MaxM: 255, MinN: 8, MaxN: 255, MinP: 1, MaxP: 63}},
		}},
		Perf:   &Perf{},
		Memory: &Memory{Groups: 1, Types: []MemoryConfig{{Type: memory}}},
		Analog: &Analog{Loads: []uint32{0, 0}},
		Panels: &Panels{},
		LVDS:   &LVDS{},
		TMDS:   &TMDS{},
		DCB:    &DCB{Offset: 0x300, Version: 0x40},
	}
}

// RemoveToken takes the BIT token with that letter out, and the tables that
// hang from it. It reports whether the token was there.
func (d *Description) RemoveToken(id byte) bool {
	for _, k := range tokenKinds {
		if k.id == id && k.present(d) {
			k.remove(d)
			return true
		}
	}
	n := len(d.Other)
	d.Other = slices.DeleteFunc(d.Other, func(t RawToken) bool { return t.ID == id })
	return len(d.Other) < n
}

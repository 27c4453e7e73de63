package firmware

import (
	"encoding/hex"
	"fmt"
)

// HexBytes are bytes that print as hexadecimal in JSON.
type HexBytes []byte

// MarshalText implements encoding.TextMarshaler.
func (b HexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(b)), nil }

// Image is a parsed file: one or more ROM images and what the BIOS
// Information Table of the first leads to.
type Image struct {
	Data       []byte      `json:"-"` // the file
	Size       int         `json:"size"`
	SHA256     HexBytes    `json:"sha256"`
	Version    string      `json:"version,omitempty"` // of the VBIOS as tools print it, such as 70.00.21.00.02
	Parts      []Part      `json:"parts"`
	BIT        int         `json:"bit_offset"` // of the BIOS Information Table; 0: none
	Tokens     []Token     `json:"tokens"`     // in the order of the file
	Scripts    []Script    `json:"scripts"`
	Structures []Structure `json:"structures"` // everything decoded, in the order it was met
	Warnings   []*Error    `json:"warnings"`   // mistakes that drivers are known to tolerate
}

// Part is one ROM image of the file.
type Part struct {
	Offset   int   `json:"offset"`
	Size     int   `json:"size"`
	Vendor   int   `json:"vendor"`
	Device   int   `json:"device"`
	Class    int   `json:"class"`
	CodeType int   `json:"code_type"`
	Last     bool  `json:"last"`
	Checksum uint8 `json:"checksum"` // sum of all bytes; 0 is good

	dcb  int       // a pointer
	pcir Structure // PCI data structure
}

// checked reports whether the part's bytes have to add up to 0.
func (p *Part) checked() bool { return p.CodeType == codeX86 }

// Token is one entry of the BIT.
type Token struct {
	ID      uint8    `json:"id"`
	Version uint8    `json:"version"`
	Offset  int      `json:"offset"` // of the data, in the file
	Size    int      `json:"size"`
	Name    string   `json:"name"`    // what the letter stands for, if known
	Decoded bool     `json:"decoded"` // false: only the raw data is known
	Data    HexBytes `json:"data"`
}

// Structure is one structure of the file, field by field.
type Structure struct {
	Name   string  `json:"name"`
	Offset int     `json:"offset"`
	Size   int     `json:"size"`
	Fields []Field `json:"fields"`
}

// Field is one decoded field of a structure.
type Field struct {
	Offset  int    `json:"offset"` // from the structure's start
	Width   int    `json:"width"`  // bytes
	Bits    string `json:"bits,omitempty"`
	Name    string `json:"name"`
	Value   uint64 `json:"value"`
	Hex     string `json:"hex,omitempty"`
	Text    string `json:"text,omitempty"`
	Meaning string `json:"meaning,omitempty"`
	isPtr   bool
}

// NoOffset is the Offset of an Error about an image that was not built.
const NoOffset = -1

// Error is the reason why an image was refused, or not built, or a warning.
type Error struct {
	Offset int    `json:"offset"` // byte offset in the file of the structure or field at fault; NoOffset if there is none
	What   string `json:"what"`   // the structure or field
	Reason string `json:"reason"` // what is wrong with it, and what would be right
}

func (e *Error) Error() string { return "vbios: " + e.text() }

func (e *Error) text() string {
	if e.Offset == NoOffset {
		return e.What + ": " + e.Reason
	}
	return fmt.Sprintf("at 0x%06x: %s: %s", e.Offset, e.What, e.Reason)
}

func errorf(offset int, what, format string, args ...any) *Error {
	return &Error{Offset: offset, What: what, Reason: fmt.Sprintf(format, args...)}
}

package firmware

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

const (
	maxFile    = 16 << 20 // far above any VBIOS; the card's ROM window is 1 MiB
	maxScripts = 256
)

// Parse reads any VBIOS file: one image, or several in a row, the first of them with a BIT.
// A mistake that makes drivers fail is an error (an [*Error] with the offset); others are
// in Image.Warnings. Parse keeps a copy of data.
//
// The Description of the result holds the parts that were understood. Build makes an
// equivalent image of it, with the same tables at other places, not a copy of data.
func Parse(data []byte) (*Image, error) {
	if len(data) > maxFile {
		return nil, errorf(0, "file", "%d bytes is no VBIOS, the largest taken is %d", len(data), maxFile)
	}
	hash := sha256.Sum256(data)
	img := &Image{Data: slices.Clone(data), Size: len(data), SHA256: hash[:]}
	p := &parser{img: img, data: img.Data}
	for _, step := range []func() error{p.parts, p.bit, p.scripts, p.dcb} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return img, nil
}

type parser struct {
	img  *Image
	data []byte

	// Pointers at or above the first image's size lead into the image of type
	// codeNBSI, if there is one.
	firstSize, moreData int

	initAt, scriptTable, extraScript int // the 'I' token's data and two of its pointers
}

func (p *parser) warn(at int, what, format string, args ...any) {
	p.img.Warnings = append(p.img.Warnings, Warning{at, what, fmt.Sprintf(format, args...)})
}

// bytes returns n bytes at a file offset.
func (p *parser) bytes(at, n int, what string) ([]byte, error) {
	if at < 0 || n < 0 || at > len(p.data) || n > len(p.data)-at {
		return nil, errorf(at, what, "its 0x%x bytes end at 0x%06x, the file at 0x%06x", n, at+n, len(p.data))
	}
	return p.data[at : at+n : at+n], nil
}

// resolve turns a pointer in the VBIOS into a file offset.
func (p *parser) resolve(ptr int) int {
	if p.moreData != 0 && ptr >= p.firstSize {
		return ptr - p.firstSize + p.moreData
	}
	return ptr
}

// pointed returns the n bytes to which the pointer ptr, stored at from, points.
func (p *parser) pointed(ptr, n, from int, what string) (at int, b []byte, err error) {
	at = p.resolve(ptr)
	if b, err = p.bytes(at, n, what); err != nil {
		e := err.(*Error)
		e.Reason += fmt.Sprintf(" (pointer at 0x%06x)", from)
	}
	return at, b, err
}

// record decodes one structure and keeps it for show.
func record[T any](p *parser, l layout[T], at int, b []byte, v *T) {
	l.decode(b, v)
	s := Structure{Name: l.name, Offset: at, Size: min(len(b), l.size), Fields: l.show(b)}
	for _, field := range s.Fields {
		if field.isPtr && p.resolve(int(field.Value)) >= len(p.data) {
			p.warn(at+field.Offset, l.name+"."+field.Name, "points to 0x%06x, the file ends at 0x%06x", field.Value, len(p.data))
		}
	}
	p.img.Structures = append(p.img.Structures, s)
}

// follow decodes the structure to which the pointer ptr, stored at from, points. At least
// least bytes of it must be in the file.
func follow[T any](p *parser, l layout[T], least, ptr, from int, v *T) (at int, err error) {
	at, _, err = p.pointed(ptr, least, from, l.name)
	if err != nil {
		return at, err
	}
	record(p, l, at, p.data[at:min(at+l.size, len(p.data))], v)
	return at, nil
}

// table returns the entries of the table at at, whose header has been read. sizeAt is the
// offset of the entry size in the header.
func (p *parser) table(at, sizeAt int, h tableHeader, headerLeast, entryLeast int, what string) ([][]byte, error) {
	if int(h.HeaderSize) < headerLeast {
		return nil, errorf(at+1, what, "header of 0x%02x bytes, at least 0x%02x are needed", h.HeaderSize, headerLeast)
	}
	if h.Entries > 0 && int(h.EntrySize) < entryLeast {
		return nil, errorf(at+sizeAt, what, "entries of 0x%02x bytes, at least 0x%02x are needed", h.EntrySize, entryLeast)
	}
	b, err := p.bytes(at+int(h.HeaderSize), int(h.Entries)*int(h.EntrySize), what+" entries")
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for i := range int(h.Entries) {
		out = append(out, b[i*int(h.EntrySize):(i+1)*int(h.EntrySize)])
	}
	return out, nil
}

// parts walks the chain of ROM images.
func (p *parser) parts() error {
	for base := 0; ; {
		part, err := p.part(base)
		if err != nil && base == 0 {
			return err
		}
		if err != nil {
			var e *Error
			errors.As(err, &e)
			p.warn(e.Offset, e.What, "%s; the images before it are used", e.Reason)
			break
		}
		p.img.Parts = append(p.img.Parts, *part)
		base += part.Size
		if part.Last {
			break
		}
	}
	parts := p.img.Parts
	first := &parts[0]
	p.firstSize = first.Size
	for i := range parts[1:] {
		if parts[1+i].PCIR.CodeType == codeNBSI {
			p.moreData = parts[1+i].Offset
			break
		}
	}
	last := &parts[len(parts)-1]
	end := last.Offset + last.Size
	if rest := p.data[end:]; last.Last && len(bytes.Trim(rest, "\x00\xff")) > 0 {
		p.warn(end, "file", "0x%x bytes follow the last image", len(rest))
	}

	d := &p.img.Description
	d.Signature, d.EntryPoint, d.Size, d.PCIROffset = first.Header.Signature, first.Header.EntryPoint, first.Size, int(first.Header.PCIR)
	d.Vendor, d.Device, d.Class = first.PCIR.Vendor, first.PCIR.Device, first.PCIR.Class
	d.Revision, d.CodeRevision, d.CodeType = first.PCIR.Revision, first.PCIR.CodeRevision, first.PCIR.CodeType
	return nil
}

// part reads the ROM image at base.
func (p *parser) part(base int) (*Part, error) {
	b, err := p.bytes(base, romHeaderShort, "ROM header")
	if err != nil {
		return nil, err
	}
	if err := p.checkSignature(base); err != nil {
		return nil, err
	}
	if base == 0 {
		// Only here is there an NVIDIA header; a shorter file fails below, on its size.
		b = p.data[:min(romHeaderLayout.size, len(p.data))]
	}
	part := &Part{Offset: base}
	record(p, romHeaderLayout, base, b, &part.Header)

	if part.Header.PCIR == 0 {
		return nil, errorf(base+0x18, "ROM header.PCIR", "is 0, there is no PCI data structure")
	}
	at := base + int(part.Header.PCIR)
	b, err = p.bytes(at, pcirShort, "PCIR")
	if err != nil {
		return nil, err
	}
	switch sig := getLE(b, 4); sig {
	case signaturePCIR, signatureRGIS, signatureNPDS:
	default:
		return nil, errorf(at, "PCIR", "the signature is %08x, want %08x (PCIR)", sig, uint32(signaturePCIR))
	}
	if getLE(b[0x0a:], 2) >= uint64(pcirLayout.size) {
		b = p.data[at:min(at+pcirLayout.size, len(p.data))]
	}
	record(p, pcirLayout, at, b, &part.PCIR)
	part.Size, part.Last = int(part.PCIR.ImageLength)*512, part.PCIR.Indicator&indicatorLast != 0

	sizeAt := at + 0x10
	if part.PCIR.CodeType == codeEND {
		part.Last = true
	} else if nat, ok := p.npde(at+int(part.PCIR.Length), part); ok {
		sizeAt = nat + 0x08
	}
	if part.Size == 0 {
		return nil, errorf(sizeAt, "image length", "is 0")
	}
	body, err := p.bytes(base, part.Size, "image")
	if err != nil {
		return nil, errorf(sizeAt, "image length", "the image at 0x%06x has 0x%x bytes, the file only 0x%x more: it was cut short", base, part.Size, len(p.data)-base)
	}
	if int(part.Header.PCIR)+len(b) > part.Size {
		return nil, errorf(base+0x18, "ROM header.PCIR", "0x%04x lies outside the image of 0x%x bytes", part.Header.PCIR, part.Size)
	}
	part.Checksum = sum8(body)
	if part.checked() && part.Checksum != 0 {
		p.warn(base+part.Size-1, "checksum", "the bytes of the image at 0x%06x add up to %02x, not 00; drivers prefer another copy if they find one", base, part.Checksum)
	}
	return part, nil
}

func (p *parser) checkSignature(base int) error {
	sig := uint16(getLE(p.data[base:], 2))
	if sig == SignatureROM || base > 0 && (sig == signatureROM77 || sig == signatureNV) {
		return nil
	}
	if base == 0 && getLE(p.data, 4) == signatureNVGI {
		return errorf(0, "ROM header", "the file starts with an NVGI header, as dumps of whole flash chips do; cut it off, so that the file starts with 55 aa%s", p.firstROM())
	}
	hint := ""
	if base == 0 {
		hint = p.firstROM()
	}
	return errorf(base, "ROM header", "the signature is %02x %02x, want 55 aa%s", p.data[base], p.data[base+1], hint)
}

// firstROM is the offset of the image in the file, if not 0.
func (p *parser) firstROM() string {
	for at := 512; at+romHeaderShort <= len(p.data); at += 512 {
		if getLE(p.data[at:], 2) != SignatureROM {
			continue
		}
		pcir := at + int(getLE(p.data[at+0x18:], 2))
		if pcir+4 <= len(p.data) && getLE(p.data[pcir:], 4) == signaturePCIR {
			return fmt.Sprintf(" (found at 0x%06x)", at)
		}
	}
	return ""
}

// npde reads the NVIDIA extension of PCIR, which ends at end, if there is one.
func (p *parser) npde(end int, part *Part) (at int, ok bool) {
	at = (end + 15) &^ 15
	b, err := p.bytes(at, npdeLayout.size, "NPDE")
	if err != nil || getLE(b, 4) != signatureNPDE {
		return 0, false
	}
	part.NPDE = new(NPDE)
	record(p, npdeLayout, at, b, part.NPDE)
	part.Size, part.Last = int(part.NPDE.ImageLength)*512, part.NPDE.Indicator&indicatorLast != 0
	return at, true
}

// bit reads the BIOS Information Table, which may be anywhere.
func (p *parser) bit() error {
	base := bytes.Index(p.data, bitMagic)
	if base < 0 {
		p.warn(0, "BIT", "not found: the VBIOS is of a board before GeForce 6, or not NVIDIA's")
		return nil
	}
	var h BITHeader
	b, err := p.bytes(base, bitHeaderLayout.size, "BIT header")
	if err != nil {
		return err
	}
	record(p, bitHeaderLayout, base, b, &h)
	if int(h.HeaderSize) < bitHeaderLayout.size {
		return errorf(base+8, "BIT header", "0x%02x bytes long, at least 0x%02x are needed", h.HeaderSize, bitHeaderLayout.size)
	}
	if h.Tokens > 0 && int(h.TokenSize) < bitTokenLayout.size {
		return errorf(base+9, "BIT header", "tokens of 0x%02x bytes, at least 0x%02x are needed", h.TokenSize, bitTokenLayout.size)
	}
	table, err := p.bytes(base, int(h.HeaderSize)+int(h.Tokens)*int(h.TokenSize), "BIT")
	if err != nil {
		return err
	}
	if s := sum8(table[:h.HeaderSize]); s != 0 {
		p.warn(base+0x0b, "BIT header", "its bytes add up to %02x, not 00", s)
	}
	if h.Version != bitVersion {
		p.warn(base+6, "BIT header", "version %04x, only %04x is known", h.Version, bitVersion)
	}
	p.img.Description.BITOffset = base
	seen := map[uint8]bool{}
	for i := range int(h.Tokens) {
		at := int(h.HeaderSize) + i*int(h.TokenSize)
		var t bitToken
		bitTokenLayout.decode(table[at:], &t)
		if seen[t.ID] {
			p.warn(base+at, "BIT", "token %q comes again, drivers use the first", t.ID)
		}
		if err := p.token(t, base+at, !seen[t.ID]); err != nil {
			return err
		}
		seen[t.ID] = true
	}
	return nil
}

// token reads the data of one BIT token at offset from.
func (p *parser) token(t bitToken, from int, first bool) error {
	name := fmt.Sprintf("BIT %q", t.ID)
	kind := kindOf(t.ID, t.Version)
	if !first {
		kind = nil
	}
	tok := Token{ID: t.ID, Version: t.Version, Offset: p.resolve(int(t.Pointer)), Size: int(t.Size), Name: tokenNames[t.ID]}
	var b []byte
	if t.Size > 0 {
		var err error
		if _, b, err = p.pointed(int(t.Pointer), int(t.Size), from+4, name+" data"); err != nil {
			if kind != nil {
				return err
			}
			e := err.(*Error)
			p.warn(e.Offset, e.What, "%s", e.Reason)
			b = nil
		}
	}
	tok.Data = b
	if kind != nil && len(b) == 0 {
		p.warn(from+2, name, "has no data")
		kind = nil
	}
	if kind != nil {
		if len(b) < kind.least {
			p.warn(from+2, name, "0x%02x bytes of data, drivers need 0x%02x", len(b), kind.least)
		}
		understood, err := kind.parse(p, &p.img.Description, tokenData{tok.Offset, b})
		if err != nil {
			return err
		}
		tok.Decoded = understood
	}
	p.img.Tokens = append(p.img.Tokens, tok)
	if !tok.Decoded {
		p.img.Description.Other = append(p.img.Description.Other, RawToken{t.ID, t.Version, b})
	}
	return nil
}

// scripts decodes the init scripts. It runs after all tokens are read, for
// instruction sizes depend on the 'M' token.
func (p *parser) scripts() error {
	d := &p.img.Description
	if d.Init == nil {
		return nil
	}
	configs, left := d.ramConfigs(), maxInstructions
	if p.scriptTable != 0 {
		for i := 0; ; i++ {
			from := p.resolve(p.scriptTable) + 2*i
			b, err := p.bytes(from, 2, "init script table")
			if err != nil {
				return err
			}
			ptr := int(getLE(b, 2))
			if ptr == 0 {
				break
			}
			if i == maxScripts {
				p.warn(from, "init script table", "more than %d scripts, the rest is left out", maxScripts)
				break
			}
			code, err := p.script(fmt.Sprintf("script %d", i), ptr, from, configs, &left)
			if err != nil {
				return err
			}
			d.Init.Scripts = append(d.Init.Scripts, code)
		}
	}
	if p.extraScript != 0 {
		code, err := p.script("extra script", p.extraScript, p.initAt+0x0e, configs, &left)
		if err != nil {
			return err
		}
		if len(code) > 0 {
			d.Init.Extra = code
		}
	}
	return nil
}

func (p *parser) script(name string, ptr, from, configs int, left *int) (HexBytes, error) {
	at, _, err := p.pointed(ptr, 1, from, name)
	if err != nil {
		return nil, err
	}
	ins, err := decodeScript(p.data[at:], at, configs, *left)
	*left -= len(ins)
	end := at
	if err != nil {
		e := err.(*Error)
		p.warn(e.Offset, name, "%s; it is cut off there", e.Reason)
	}
	if len(ins) > 0 {
		last := ins[len(ins)-1]
		end = last.Offset + last.Size
	}
	s := Script{Name: name, Offset: at, Code: p.data[at:end:end], Instructions: ins}
	p.img.Scripts = append(p.img.Scripts, s)
	return s.Code, nil
}

// dcb reads the device control block.
func (p *parser) dcb() error {
	ptr := int(p.img.Parts[0].Header.DCB)
	if ptr == 0 {
		p.warn(0x36, "DCB", "not found: drivers warn about each table they miss")
		return nil
	}
	at, b, err := p.pointed(ptr, 10, 0x36, "DCB")
	if err != nil {
		return err
	}
	if v := b[0]; v < dcbOldest || v > dcbNewest {
		p.warn(at, "DCB", "version %02x is not understood, only %02x to %02x are", v, dcbOldest, dcbNewest)
		return nil
	}
	if sig := getLE(b[6:], 4); sig != dcbSignature {
		p.warn(at+6, "DCB", "the signature is %08x, want %08x: drivers ignore the DCB", sig, uint32(dcbSignature))
		return nil
	}
	size := int(b[1])
	if size < dcbHeaderLeast {
		return errorf(at+1, "DCB", "header of 0x%02x bytes, at least 0x%02x are needed", size, dcbHeaderLeast)
	}
	if b, err = p.bytes(at, min(size, dcbLayout.size), "DCB"); err != nil {
		return err
	}
	d := &DCB{Offset: at}
	record(p, dcbLayout, at, b, d)
	entries, err := p.table(at, 3, tableHeader{d.Version, d.HeaderSize, d.EntrySize, d.Entries}, dcbHeaderLeast, dcbOutputLayout.size, "DCB")
	if err != nil {
		return err
	}
	for i, b := range entries {
		var out DCBOutput
		record(p, dcbOutputLayout, at+size+i*int(d.EntrySize), b, &out)
		d.Outputs = append(d.Outputs, out)
	}
	d.HeaderSize, d.Entries, d.EntrySize, d.Signature = 0, 0, 0, 0 // Build sets them
	p.img.Description.DCB = d
	return nil
}

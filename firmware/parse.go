package firmware

import (
	"bytes"
	"crypto/sha256"
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

	init       *Structure // the 'I' token's data
	ramConfigs int        // how many RAM configurations scripts have values for: the 'M' token's Groups
}

func (p *parser) warn(at int, what, format string, args ...any) {
	p.img.Warnings = append(p.img.Warnings, errorf(at, what, format, args...))
}

// bytes returns n bytes at a file offset.
func (p *parser) bytes(at, n int, what string) ([]byte, error) {
	if at < 0 || n < 0 || at > len(p.data) || n > len(p.data)-at {
		return nil, errorf(at, what, "its 0x%x bytes end at 0x%06x, the file at 0x%06x", n, at+n, len(p.data))
	}
	return p.data[at : at+n : at+n], nil
}

// pointed returns the n bytes to which the pointer at, stored at from, points.
func (p *parser) pointed(at, n, from int, what string) (b []byte, err error) {
	if b, err = p.bytes(at, n, what); err != nil {
		e := err.(*Error)
		e.Reason += fmt.Sprintf(" (pointer at 0x%06x)", from)
	}
	return b, err
}

// record decodes one structure and keeps it for show.
func (p *parser) record(l *layout, at int, b []byte) Structure {
	s := Structure{Name: l.name, Offset: at, Size: min(len(b), l.size), Fields: l.decode(b)}
	for _, field := range s.Fields {
		if field.isPtr && int(field.Value) >= len(p.data) {
			p.warn(at+field.Offset, l.name+"."+field.Name, "points to 0x%06x, the file ends at 0x%06x", field.Value, len(p.data))
		}
	}
	p.img.Structures = append(p.img.Structures, s)
	return s
}

// follow decodes the structure to which a field of from points. At least least bytes of it must be
// in the file.
func (p *parser) follow(from *Structure, field string, l *layout, least int) (Structure, error) {
	at := from.value(field)
	if _, err := p.pointed(at, least, from.at(field), l.name); err != nil {
		return Structure{}, err
	}
	return p.record(l, at, p.data[at:min(at+l.size, len(p.data))]), nil
}

// table reads what the pointer in a token's data leads to. understood is false if the token has to
// be kept raw: there is no table, or its version is another.
func (p *parser) table(t *table, token *Structure) (understood bool, err error) {
	if token.value(t.pointer) == 0 {
		p.warn(token.at(t.pointer), token.Name, "%s", t.missing)
		return !t.needed, nil
	}
	h, err := p.follow(token, t.pointer, &t.header, tableHeaderSize)
	if err != nil {
		return false, err
	}
	if v := h.value("Version"); v != int(t.version) {
		p.warn(h.Offset, t.header.name, "version %02x is not understood, only %02x is", v, t.version)
		return !t.needed, nil
	}
	err = p.entries(&h, t.header.size, t.entry.size, func(at int, b []byte) error {
		e := p.record(&t.entry, at, b)
		if t.limits == nil || e.value("LimitsAt") == 0 {
			return nil
		}
		_, err := p.follow(&e, "LimitsAt", t.limits, t.limits.size)
		return err
	})
	if t == &memoryTypes && err == nil {
		p.checkMemoryTypes(&h)
	}
	return err == nil, err
}

func (p *parser) checkMemoryTypes(h *Structure) {
	if h.value("Entries") == 0 {
		p.warn(h.at("Entries"), h.Name, "has no entries: drivers cannot tell the kind of memory")
	} else if way := h.value("Match"); way != 0 {
		p.warn(h.at("Match"), h.Name, "is searched in way %02x, only 00 (by RAM strap) is known", way)
	}
}

// entries calls each for the entries behind a header: with an entry's offset and its bytes. least
// and leastEntry are the bytes that header and entries must have.
func (p *parser) entries(h *Structure, least, leastEntry int, each func(at int, b []byte) error) error {
	size, n, stride := h.value("HeaderSize"), h.value("Entries"), h.value("EntrySize")
	if size < least {
		return errorf(h.at("HeaderSize"), h.Name, "header of 0x%02x bytes, at least 0x%02x are needed", size, least)
	}
	if n > 0 && stride < leastEntry {
		return errorf(h.at("EntrySize"), h.Name, "entries of 0x%02x bytes, at least 0x%02x are needed", stride, leastEntry)
	}
	at := h.Offset + size
	b, err := p.bytes(at, n*stride, h.Name+" entries")
	if err != nil {
		return err
	}
	for i := range n {
		if err := each(at+i*stride, b[i*stride:][:stride]); err != nil {
			return err
		}
	}
	return nil
}

// parts walks the chain of ROM images.
func (p *parser) parts() error {
	for base := 0; ; {
		part, err := p.part(base)
		if err != nil && base == 0 {
			return err
		}
		if err != nil {
			e := err.(*Error)
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
	last := &parts[len(parts)-1]
	end := last.Offset + last.Size
	if rest := p.data[end:]; last.Last && len(bytes.Trim(rest, "\x00\xff")) > 0 {
		p.warn(end, "file", "0x%x bytes follow the last image", len(rest))
	}
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
		b = p.data[:min(romHeader.size, len(p.data))]
	}
	header := p.record(&romHeader, base, b)
	if header.value("PCIR") == 0 {
		return nil, errorf(header.at("PCIR"), "ROM header.PCIR", "is 0, there is no PCI data structure")
	}
	at := base + header.value("PCIR")
	b, err = p.bytes(at, pcirShort, "PCIR")
	if err != nil {
		return nil, err
	}
	if sig := getLE(b, 4); sig != signaturePCIR {
		return nil, errorf(at, "PCIR", "the signature is %08x, want %08x (PCIR)", sig, uint32(signaturePCIR))
	}
	if getLE(b[0x0a:], 2) >= uint64(pcir.size) {
		b = p.data[at:min(at+pcir.size, len(p.data))]
	}
	s := p.record(&pcir, at, b)
	part := &Part{
		Offset: base, Vendor: s.value("Vendor"), Device: s.value("Device"), Class: s.value("Class"), CodeType: s.value("CodeType"),
		Size: s.value("ImageLength") * 512, Last: s.value("Indicator")&indicatorLast != 0,
		dcb: header.value("DCB"), pcir: s,
	}
	if part.Size == 0 {
		return nil, errorf(s.at("ImageLength"), "image length", "is 0")
	}
	body, err := p.bytes(base, part.Size, "image")
	if err != nil {
		return nil, errorf(s.at("ImageLength"), "image length",
			"the image at 0x%06x has 0x%x bytes, the file only 0x%x more: it was cut short", base, part.Size, len(p.data)-base)
	}
	if at-base+len(b) > part.Size {
		return nil, errorf(header.at("PCIR"), "ROM header.PCIR", "0x%04x lies outside the image of 0x%x bytes", at-base, part.Size)
	}
	part.Checksum = sum8(body)
	if part.checked() && part.Checksum != 0 {
		p.warn(base+part.Size-1, "checksum", "the bytes of the image at 0x%06x add up to %02x, not 00; drivers prefer another copy if they find one", base, part.Checksum)
	}
	return part, nil
}

func (p *parser) checkSignature(base int) error {
	if getLE(p.data[base:], 2) == signatureROM {
		return nil
	}
	hint := ""
	if base == 0 {
		hint = p.firstROM()
	}
	return errorf(base, "ROM header", "the signature is %02x %02x, want 55 aa%s", p.data[base], p.data[base+1], hint)
}

// firstROM is the offset of the image in a file that begins with something else, as dumps of whole
// flash chips do.
func (p *parser) firstROM() string {
	for at := 512; at+romHeaderShort <= len(p.data); at += 512 {
		if getLE(p.data[at:], 2) != signatureROM {
			continue
		}
		pcir := at + int(getLE(p.data[at+0x18:], 2))
		if pcir+4 <= len(p.data) && getLE(p.data[pcir:], 4) == signaturePCIR {
			return fmt.Sprintf(": cut off what is before 0x%06x", at)
		}
	}
	return ""
}

// bit reads the BIOS Information Table, which may be anywhere.
func (p *parser) bit() error {
	base := bytes.Index(p.data, bitMagic)
	if base < 0 {
		p.warn(0, "BIT", "not found: the VBIOS is of a board before GeForce 6, or not NVIDIA's")
		return nil
	}
	b, err := p.bytes(base, bitHeader.size, "BIT header")
	if err != nil {
		return err
	}
	h := p.record(&bitHeader, base, b)
	p.img.BIT = base
	if err := p.entries(&h, bitHeader.size, tokenSize, p.token); err != nil {
		return err
	}
	if s := sum8(p.data[base:][:h.value("HeaderSize")]); s != 0 {
		p.warn(h.at("Checksum"), h.Name, "its bytes add up to %02x, not 00", s)
	}
	if v := h.value("Version"); v != bitVersion {
		p.warn(h.at("Version"), h.Name, "version %04x, only %04x is known", v, bitVersion)
	}
	return nil
}

// token reads the BIT token b, which is at offset from, and its data.
func (p *parser) token(from int, b []byte) error {
	tok := Token{ID: b[0], Version: b[1], Size: int(getLE(b[2:], 2)), Name: tokenNames[b[0]]}
	at := int(getLE(b[4:], 2))
	tok.Offset = at
	name := fmt.Sprintf("BIT %q", tok.ID)
	kind := kindOf(tok.ID, tok.Version)
	if p.img.token(tok.ID) != nil {
		p.warn(from, "BIT", "token %q comes again, drivers use the first", tok.ID)
		kind = nil
	}
	if tok.Size > 0 {
		var err error
		if tok.Data, err = p.pointed(at, tok.Size, from+4, name+" data"); err != nil {
			if kind != nil {
				return err
			}
			p.img.Warnings = append(p.img.Warnings, err.(*Error))
		}
	}
	if kind != nil && len(tok.Data) == 0 {
		p.warn(from+2, name, "has no data")
		kind = nil
	}
	if kind != nil {
		if len(tok.Data) < kind.least {
			p.warn(from+2, name, "0x%02x bytes of data, drivers need 0x%02x", len(tok.Data), kind.least)
		}
		understood, err := p.known(kind, &tok)
		if err != nil {
			return err
		}
		tok.Decoded = understood
	}
	p.img.Tokens = append(p.img.Tokens, tok)
	return nil
}

// known reads the data of a token of a known kind, and what it leads to.
func (p *parser) known(kind *tokenKind, tok *Token) (understood bool, err error) {
	s := p.record(&kind.layout, tok.Offset, tok.Data)
	if kind.table != nil {
		if understood, err = p.table(kind.table, &s); !understood || err != nil {
			return false, err
		}
	}
	switch tok.ID {
	case 'i':
		p.img.Version = fmt.Sprintf("%02x.%02x.%02x.%02x.%02x",
			s.value("Major"), s.value("Chip"), s.value("Minor"), s.value("Micro"), s.value("Patch"))
	case 'I':
		p.init = &s
	case 'M':
		p.ramConfigs = s.value("Groups")
	}
	return true, nil
}

func kindOf(id, version uint8) *tokenKind {
	if k := tokenKinds[id]; k != nil && k.version == version {
		return k
	}
	return nil
}

// scripts decodes the init scripts. It runs after all tokens are read, for
// instruction sizes depend on the 'M' token.
func (p *parser) scripts() error {
	if p.init == nil {
		return nil
	}
	left := maxInstructions
	if at := p.init.value("ScriptTable"); at != 0 {
		for i := 0; ; i++ {
			from := at + 2*i
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
			if err := p.script(fmt.Sprintf("script %d", i), ptr, from, &left); err != nil {
				return err
			}
		}
	}
	if at := p.init.value("ExtraScript"); at != 0 {
		return p.script("extra script", at, p.init.at("ExtraScript"), &left)
	}
	return nil
}

func (p *parser) script(name string, at, from int, left *int) error {
	if _, err := p.pointed(at, 1, from, name); err != nil {
		return err
	}
	ins, err := decodeScript(p.data[at:], at, p.ramConfigs, *left)
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
	p.img.Scripts = append(p.img.Scripts, Script{Name: name, Offset: at, Code: p.data[at:end:end], Instructions: ins})
	return nil
}

// dcb reads the device control block.
func (p *parser) dcb() error {
	at := p.img.Parts[0].dcb
	if at == 0 {
		p.warn(0x36, "DCB", "not found: drivers warn about each table they miss")
		return nil
	}
	b, err := p.pointed(at, 10, 0x36, "DCB")
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
	if b, err = p.bytes(at, max(len(b), min(int(b[1]), dcb.size)), "DCB"); err != nil {
		return err
	}
	h := p.record(&dcb, at, b)
	return p.entries(&h, dcbHeaderLeast, dcbOutput.size, func(at int, b []byte) error {
		p.record(&dcbOutput, at, b)
		return nil
	})
}

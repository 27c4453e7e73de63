package firmware

import (
	"cmp"
	"strings"
)

// maxSize is the largest image Build makes: one byte holds its size.
const maxSize = 255 * 512

// Where Build puts what has a fixed place.
const (
	pcirAt = 0x40
	bitAt  = 0x80
	dcbAt  = 0x300
)

// Options are what GF100 images commonly differ in. The zero value gives the
// validated image.
type Options struct {
	Device     uint16 // PCI device id; 0 means 06d8, Quadro 6000
	Size       int    // bytes, a multiple of 512; 0 means 8 KiB
	MemoryType *uint8 // MemoryDDR2 to MemoryGDDR5; nil means MemoryDDR3, which spares the driver GDDR5 link training
	Without    string // letters of the BIT tokens to leave out
}

// Build makes an image for a GF100 that nouveau of Linux 6.1, 6.12 and 7.2 takes without a warning:
// no display outputs, one empty init script, DDR3.
func Build(o Options) ([]byte, error) {
	size := cmp.Or(o.Size, 8<<10)
	if size%512 != 0 || size <= dcbAt+dcb.size || size > maxSize {
		return nil, errorf(NoOffset, "size", "the image does not fit in %d bytes; give a multiple of 512 from 1024 to %d", size, maxSize)
	}
	b := &builder{image: make([]byte, size)}
	units := uint64(size / 512)
	b.write(0, &romHeader, values{"Signature": signatureROM, "Size512": units, "EntryPoint": 0xcb, "PCIR": pcirAt, "DCB": dcbAt})
	b.write(pcirAt, &pcir, values{
		"Signature": signaturePCIR, "Vendor": 0x10de, "Device": uint64(cmp.Or(o.Device, 0x06d8)), "Length": uint64(pcir.size),
		"Class": 0x030200, "ImageLength": units, "CodeType": codeX86, "Indicator": indicatorLast,
	})
	b.bit(o)
	b.write(dcbAt, &dcb, values{
		"Version": 0x40, "HeaderSize": uint64(dcb.size), "EntrySize": uint64(dcbOutput.size), "Signature": dcbSignature,
	})
	b.image[size-1] = -sum8(b.image)
	return b.image, nil
}

// A builder lays structures out in an image, one behind the other.
type builder struct {
	image []byte
	next  int // free from here on
}

func (b *builder) write(at int, l *layout, v values) { l.encode(b.image[at:], v) }

// alloc takes n bytes, 4-byte aligned.
func (b *builder) alloc(n int) (at int) {
	at = (b.next + 3) &^ 3
	b.next = at + n
	return at
}

// put writes a structure to a place of its own.
func (b *builder) put(l *layout, v values) uint64 {
	at := b.alloc(l.size)
	b.write(at, l, v)
	return uint64(at)
}

// table writes a table. limits are the structures that its entries lead to.
func (b *builder) table(t *table, entries, limits []values) uint64 {
	at := b.alloc(t.header.size + len(entries)*t.entry.size)
	b.write(at, &t.header, values{
		"Version": uint64(t.version), "HeaderSize": uint64(t.header.size), "EntrySize": uint64(t.entry.size), "Entries": uint64(len(entries)),
	})
	for i, v := range entries {
		if limits != nil {
			v["LimitsAt"] = b.put(t.limits, limits[i])
		}
		b.write(at+t.header.size+i*t.entry.size, &t.entry, v)
	}
	return uint64(at)
}

// Tokens are the letters of the BIT tokens that Build makes.
const Tokens = "iICPMADLT"

// bit lays out the BIT, its tokens and what they point to.
func (b *builder) bit(o Options) {
	var tokens []byte
	for _, id := range []byte(Tokens) {
		if !strings.ContainsRune(o.Without, rune(id)) {
			tokens = append(tokens, id)
		}
	}
	b.next = bitAt + bitHeader.size + len(tokens)*tokenSize
	header := b.image[bitAt:][:bitHeader.size]
	bitHeader.encode(header, values{
		"ID": bitID, "Signature": bitSignature, "Version": bitVersion,
		"HeaderSize": uint64(bitHeader.size), "EntrySize": tokenSize, "Entries": uint64(len(tokens)),
	})
	header[len(header)-1] = -sum8(header)
	for i, id := range tokens {
		kind := tokenKinds[id]
		at := b.put(&kind.layout, b.token(id, o))
		token := b.image[bitAt+bitHeader.size+i*tokenSize:]
		token[0], token[1] = id, kind.version
		putLE(token[2:], 2, uint64(kind.layout.size))
		putLE(token[4:], 2, at)
	}
}

// token builds what a token points to and returns the token's own fields.
func (b *builder) token(id byte, o Options) values {
	switch id {
	case 'i':
		return values{"Major": 0x70}
	case 'I':
		scripts, script := b.alloc(4), b.alloc(1)
		putLE(b.image[scripts:], 2, uint64(script))
		b.image[script] = opDone
		return values{"ScriptTable": uint64(scripts)}
	case 'C':
		// The limits are of the right kind, not read off a board: drivers look for the
		// entries, and use the limits only to change memory clocks.
		return values{"PLLTable": b.table(&plls, []values{
			{"Type": pllMemoryRef, "Register": 0x132020, "Reference": 27},
			{"Type": pllMemory, "Register": 0x132000, "Reference": 162},
		}, []values{
			{"MinVCO": 400, "MaxVCO": 1000, "MinInput": 5, "MaxInput": 100, "MinM": 1, "MaxM": 255, "MinN": 8, "MaxN": 255, "MinP": 1, "MaxP": 63},
			{"MinVCO": 800, "MaxVCO": 2000, "MinInput": 25, "MaxInput": 400, "MinM": 1, "MaxM": 255, "MinN": 8, "MaxN": 255, "MinP": 1, "MaxP": 63},
		})}
	case 'M':
		kind := uint8(MemoryDDR3)
		if o.MemoryType != nil {
			kind = *o.MemoryType
		}
		return values{"Groups": 1, "TypeTable": b.table(&memoryTypes, []values{{"Type": uint64(kind)}}, nil)}
	case 'A':
		return values{"LoadTable": b.table(&analogLoads, []values{{}, {}}, nil)}
	}
	return nil
}

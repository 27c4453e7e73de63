package firmware

import (
	"errors"
	"slices"
)

const (
	// leastFile is the size that a driver fetches before it reads an image.
	leastFile = 4 << 10
	// romWindow is the card's ROM window in BAR0 (300000-3fffff), all that a driver can read.
	romWindow = 1 << 20
)

// Check reports whether a GF100 driver (nouveau) can use the image on the PCI
// device vendor:device. It returns every reason why not, joined; each is an
// [*Error].
func Check(img *Image, vendor, device uint16) error {
	var errs []error
	fail := func(at int, what, format string, args ...any) { errs = append(errs, errorf(at, what, format, args...)) }
	if img.Size < leastFile {
		fail(0, "file", "0x%x bytes, drivers fetch 0x%x first: pad the file", img.Size, leastFile)
	}
	if img.Size > romWindow {
		fail(0, "file", "0x%x bytes, the card's ROM window has 0x%x", img.Size, romWindow)
	}
	first := img.Parts[0]
	if first.CodeType != codeX86 {
		fail(first.pcir.at("CodeType"), "PCIR.CodeType", "the first image has code type %02x (%s), a VBIOS has 00", first.CodeType, codeTypeName(uint64(first.CodeType)))
	}
	if first.Vendor != int(vendor) || first.Device != int(device) {
		fail(first.pcir.at("Vendor"), "PCIR.Vendor", "the VBIOS is for PCI device %04x:%04x, the card is %04x:%04x", first.Vendor, first.Device, vendor, device)
	}
	if img.BIT == 0 {
		fail(0, "BIT", "not found, drivers give up without it")
		return errors.Join(errs...)
	}
	for _, id := range []uint8{'i', 'I'} {
		checkToken(img, id, fail)
	}
	if t := img.token('C'); t != nil && t.Decoded {
		for _, want := range []uint64{pllMemoryRef, pllMemory} {
			if !img.hasPLL(want) {
				fail(t.Offset, "PLL table", "has no entry of type %02x (%s), which drivers look for", want, pllTypeName(want))
			}
		}
	}
	return errors.Join(errs...)
}

// checkToken reports a token that drivers fail without.
func checkToken(img *Image, id uint8, fail func(int, string, string, ...any)) {
	t := img.token(id)
	switch {
	case t == nil:
		fail(img.BIT, "BIT", "has no token %q (%s), drivers give up without it", id, tokenNames[id])
	case !t.Decoded:
		fail(t.Offset, "BIT", "token %q has version %d, which is not understood", id, t.Version)
	case t.Size < kindOf(t.ID, t.Version).least:
		fail(t.Offset, "BIT", "token %q has 0x%02x bytes of data, drivers need 0x%02x", id, t.Size, kindOf(t.ID, t.Version).least)
	}
}

// token is the first token with that letter, the one that counts.
func (img *Image) token(id uint8) *Token {
	for i := range img.Tokens {
		if img.Tokens[i].ID == id {
			return &img.Tokens[i]
		}
	}
	return nil
}

func (img *Image) hasPLL(kind uint64) bool {
	return slices.ContainsFunc(img.Structures, func(s Structure) bool {
		return s.Name == plls.entry.name && s.field("Type").Value == kind
	})
}

// Load parses a user's VBIOS file and checks that it suits the device.
func Load(data []byte, vendor, device uint16) (*Image, error) {
	img, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if err := Check(img, vendor, device); err != nil {
		return nil, err
	}
	return img, nil
}

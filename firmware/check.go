package firmware

import "errors"

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
	pcir := first.Offset + int(first.Header.PCIR)
	if first.PCIR.CodeType != CodeX86 {
		fail(pcir+0x14, "PCIR.CodeType", "the first image has code type %02x (%s), a VBIOS has 00", first.PCIR.CodeType, codeTypeName(uint64(first.PCIR.CodeType)))
	}
	if first.PCIR.Vendor != vendor || first.PCIR.Device != device {
		fail(pcir+4, "PCIR.Vendor", "the VBIOS is for PCI device %04x:%04x, the card is %04x:%04x", first.PCIR.Vendor, first.PCIR.Device, vendor, device)
	}
	if img.Description.BITOffset == 0 {
		fail(0, "BIT", "not found, drivers give up without it")
		return errors.Join(errs...)
	}
	for _, id := range []uint8{'i', 'I'} {
		checkToken(img, id, fail)
	}
	if c := img.Description.Clocks; c != nil {
		for _, want := range []uint8{PLLMemoryRef, PLLMemory} {
			if !c.has(want) {
				fail(img.token('C').Offset, "PLL table", "has no entry of type %02x (%s), which drivers look for", want, pllTypeName(uint64(want)))
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
		fail(img.Description.BITOffset, "BIT", "has no token %q (%s), drivers give up without it", id, tokenNames[id])
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

func (c *Clocks) has(pllType uint8) bool {
	for _, pll := range c.PLLs {
		if pll.Type == pllType {
			return true
		}
	}
	return false
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

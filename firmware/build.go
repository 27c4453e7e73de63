package firmware

import (
	"bytes"
	"fmt"
	"slices"
)

// maxSize is the largest image Build makes: one byte holds its size.
const maxSize = 255 * 512

// Build makes the image that d describes. The errors are [*Error].
func Build(d Description) ([]byte, error) {
	if d.Size <= 0 || d.Size%512 != 0 || d.Size > maxSize {
		return nil, errorf(NoOffset, "Description.Size", "%d is not a multiple of 512 from 512 to %d", d.Size, maxSize)
	}
	b := &builder{image: make([]byte, d.Size), next: d.BITOffset}
	if _, err := b.pin(d.Size-1, 1, "checksum"); err != nil {
		return nil, err
	}
	if err := b.headers(&d); err != nil {
		return nil, err
	}
	// Both go to fixed places, so they are laid out before anything that floats.
	dcb, err := b.dcb(d.DCB)
	if err != nil {
		return nil, err
	}
	if err := b.bit(&d); err != nil {
		return nil, err
	}
	putLE(b.image[0x36:], 2, uint64(dcb))
	b.image[d.Size-1] = -sum8(b.image)
	if d.BITOffset != 0 && bytes.Index(b.image, bitMagic) != d.BITOffset {
		return nil, errorf(d.BITOffset, "BIT", "other data before it holds its magic bytes, drivers would take that for the BIT")
	}
	return b.image, nil
}

// A builder lays structures out in an image.
type builder struct {
	image []byte
	used  []span // sorted by start
	next  int    // where the search for room begins
}

type span struct {
	start, end int
	name       string
}

// pin takes image bytes [at, at+n).
func (b *builder) pin(at, n int, name string) ([]byte, error) {
	if at < 0 || n < 0 || at > len(b.image) || n > len(b.image)-at {
		return nil, errorf(at, name, "0x%x bytes do not fit in the image of 0x%x", n, len(b.image))
	}
	for _, u := range b.used {
		if at < u.end && u.start < at+n {
			return nil, errorf(at, name, "0x%x bytes overlap %s at 0x%06x, move one of them", n, u.name, u.start)
		}
	}
	i, _ := slices.BinarySearchFunc(b.used, at, func(u span, at int) int { return u.start - at })
	b.used = slices.Insert(b.used, i, span{at, at + n, name})
	return b.image[at : at+n : at+n], nil
}

// alloc takes n free bytes where a 16-bit pointer reaches, 4-byte aligned.
func (b *builder) alloc(n int, name string) (at int, buf []byte, err error) {
	for _, from := range []int{b.next, 0} {
		at := align4(from)
		for _, u := range b.used {
			if at+n <= u.start {
				break
			}
			at = max(at, align4(u.end))
		}
		if at < 1<<16 && at+n <= len(b.image) {
			buf, err := b.pin(at, n, name)
			return at, buf, err
		}
	}
	return 0, nil, errorf(NoOffset, name, "no room for its 0x%x bytes in the image of 0x%x, make Description.Size larger", n, len(b.image))
}

func align4(x int) int { return (x + 3) &^ 3 }

// put places one structure.
func put[T any](b *builder, l layout[T], v *T) (at, size int, err error) {
	at, buf, err := b.alloc(l.size, l.name)
	if err != nil {
		return 0, 0, err
	}
	return at, l.size, l.encode(buf, at, v)
}

// encodeAll writes structures one behind the other, at in the image.
func encodeAll[T any](b []byte, at int, l layout[T], list []T) error {
	for i := range list {
		if err := l.encode(b[i*l.size:], at+i*l.size, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) headers(d *Description) error {
	buf, err := b.pin(0, romHeaderLayout.size, romHeaderLayout.name)
	if err != nil {
		return err
	}
	if d.PCIROffset > 0xffff {
		return errorf(d.PCIROffset, "Description.PCIROffset", "is not below 0x10000")
	}
	units := d.Size / 512
	header := ROMHeader{Signature: d.Signature, Size512: uint8(units), EntryPoint: d.EntryPoint, PCIR: uint16(d.PCIROffset)}
	if err := romHeaderLayout.encode(buf, 0, &header); err != nil {
		return err
	}
	buf, err = b.pin(d.PCIROffset, pcirLayout.size, pcirLayout.name)
	if err != nil {
		return err
	}
	return pcirLayout.encode(buf, d.PCIROffset, &PCIR{
		Signature: signaturePCIR, Vendor: d.Vendor, Device: d.Device, Length: uint16(pcirLayout.size), Revision: d.Revision, Class: d.Class,
		ImageLength: uint16(units), CodeRevision: d.CodeRevision, CodeType: d.CodeType, Indicator: indicatorLast,
	})
}

// dcb lays the device control block out and returns its place, 0 for none.
func (b *builder) dcb(d *DCB) (int, error) {
	if d == nil {
		return 0, nil
	}
	n := len(d.Outputs)
	switch {
	case n > 255:
		return 0, errorf(d.Offset, "DCB", "%d outputs, at most 255 fit", n)
	case d.Version < dcbOldest || d.Version > dcbNewest:
		return 0, errorf(d.Offset, "DCB", "version %02x is not one of %02x to %02x", d.Version, dcbOldest, dcbNewest)
	case d.Offset > 0xffff:
		return 0, errorf(d.Offset, "DCB", "is not below 0x10000")
	}
	buf, err := b.pin(d.Offset, dcbLayout.size+n*dcbOutputLayout.size, "DCB")
	if err != nil {
		return 0, err
	}
	header := *d
	header.HeaderSize, header.Entries = uint8(dcbLayout.size), uint8(n)
	header.EntrySize, header.Signature = uint8(dcbOutputLayout.size), dcbSignature
	if err := dcbLayout.encode(buf, d.Offset, &header); err != nil {
		return 0, err
	}
	return d.Offset, encodeAll(buf[dcbLayout.size:], d.Offset+dcbLayout.size, dcbOutputLayout, d.Outputs)
}

// bit lays out the BIT, its tokens and what they point to.
func (b *builder) bit(d *Description) error {
	var kinds []tokenKind
	for _, k := range tokenKinds {
		if k.present(d) {
			kinds = append(kinds, k)
		}
	}
	n := len(kinds) + len(d.Other)
	if d.BITOffset == 0 {
		if n > 0 {
			return errorf(NoOffset, "Description.BITOffset", "is 0 (no BIT), but there are %d tokens", n)
		}
		return nil
	}
	if n > 255 {
		return errorf(d.BITOffset, "BIT", "%d tokens, at most 255 fit", n)
	}
	buf, err := b.pin(d.BITOffset, bitHeaderLayout.size+n*bitTokenLayout.size, "BIT")
	if err != nil {
		return err
	}
	header := BITHeader{
		ID: bitID, Signature: bitSignature, Version: bitVersion,
		HeaderSize: uint8(bitHeaderLayout.size), TokenSize: uint8(bitTokenLayout.size), Tokens: uint8(n),
	}
	if err := bitHeaderLayout.encode(buf, d.BITOffset, &header); err != nil {
		return err
	}
	buf[0x0b] = -sum8(buf[:bitHeaderLayout.size])

	tokens := make([]bitToken, 0, n)
	for _, k := range kinds {
		at, size, err := k.build(b, d)
		if err != nil {
			return err
		}
		tokens = append(tokens, bitToken{k.id, k.version, uint16(size), uint16(at)})
	}
	for _, raw := range d.Other {
		t, err := b.rawToken(raw)
		if err != nil {
			return err
		}
		tokens = append(tokens, t)
	}
	return encodeAll(buf[bitHeaderLayout.size:], d.BITOffset+bitHeaderLayout.size, bitTokenLayout, tokens)
}

func (b *builder) rawToken(t RawToken) (bitToken, error) {
	name := fmt.Sprintf("BIT %q", t.ID)
	if kindOf(t.ID, t.Version) != nil {
		return bitToken{}, errorf(NoOffset, name, "version %d has a field of its own in Description, use it instead of Other", t.Version)
	}
	if len(t.Data) > 0xffff {
		return bitToken{}, errorf(NoOffset, name, "0x%x bytes of data, at most 0xffff fit", len(t.Data))
	}
	if len(t.Data) == 0 {
		return bitToken{ID: t.ID, Version: t.Version}, nil
	}
	at, buf, err := b.alloc(len(t.Data), name)
	if err != nil {
		return bitToken{}, err
	}
	copy(buf, t.Data)
	return bitToken{t.ID, t.Version, uint16(len(t.Data)), uint16(at)}, nil
}

// script places one init script.
func (b *builder) script(code []byte, ramConfigs int) (at int, err error) {
	ins, err := decodeScript(code, 0, ramConfigs, maxInstructions)
	if err != nil {
		e := err.(*Error)
		return 0, errorf(NoOffset, "init script", "byte 0x%x: %s", e.Offset, e.Reason)
	}
	last := ins[len(ins)-1]
	if n := last.Offset + last.Size; n != len(code) {
		return 0, errorf(NoOffset, "init script", "ends with %s after 0x%x bytes, but has 0x%x", last.Name, n, len(code))
	}
	at, buf, err := b.alloc(len(code), "init script")
	copy(buf, code)
	return at, err
}

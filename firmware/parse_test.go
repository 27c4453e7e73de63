package firmware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// fix makes the bytes of an image add up to 0 again.
func fix(b []byte) []byte {
	sum := byte(0)
	for _, x := range b {
		sum += x
	}
	b[len(b)-1] -= sum
	return b
}

func put(b []byte, at int, data ...byte) { copy(b[at:], data) }

func joined(err error) []error {
	if err == nil {
		return nil
	}
	return err.(interface{ Unwrap() []error }).Unwrap()
}

// An image without one thing says so.
func TestLeaveOneOut(t *testing.T) {
	tests := []struct {
		name    string
		options firmware.Options
		edit    func(b []byte)
		check   string // the one reason Check gives, "" for none
		warning string // the one warning, "" for none
	}{
		{"nothing", firmware.Options{}, nil, "", ""},
		{"i", firmware.Options{Without: "i"}, nil, "has no token 'i' (BIOS information), drivers give up without it", ""},
		{"I", firmware.Options{Without: "I"}, nil, "has no token 'I' (init scripts), drivers give up without it", ""},
		{"others", firmware.Options{Without: "CPMADLT"}, nil, "", ""},
		{"i too old", firmware.Options{}, func(b []byte) { b[0x8d] = 1 }, "token 'i' has version 1, which is not understood", ""},
		{"i too short", firmware.Options{}, func(b []byte) { b[0x8e] = 4 }, "token 'i' has 0x04 bytes of data, drivers need 0x0f",
			"0x04 bytes of data, drivers need 0x0f"},
		{"memory PLL", firmware.Options{}, func(b []byte) { b[0x10c+11] = 5 }, "has no entry of type 04 (memory), which drivers look for", ""},
		{"memory types", firmware.Options{}, func(b []byte) {
			m := le(b).token(t, 'M')
			put(b, m+3, 0, 0)
		}, "", "has no memory type table (M0203): drivers cannot tell the kind of memory"},
		{"memory type entries", firmware.Options{}, func(b []byte) { b[0x1a7] = 0 }, "", "has no entries: drivers cannot tell the kind of memory"},
		{"way of M0203", firmware.Options{}, func(b []byte) { b[0x1a8] = 7 }, "", "is searched in way 07, only 00 (by RAM strap) is known"},
		{"PLL table", firmware.Options{}, func(b []byte) {
			c := le(b).token(t, 'C')
			put(b, c, 0, 0)
		}, "", "has no PLL table"},
		{"DCB", firmware.Options{}, func(b []byte) { put(b, 0x36, 0, 0) }, "", "not found: drivers warn about each table they miss"},
		{"other card", firmware.Options{Device: 0x1180}, nil, "the VBIOS is for PCI device 10de:1180, the card is 10de:06d8", ""},
		{"2 KiB", firmware.Options{Size: 2048}, nil, "0x800 bytes, drivers fetch 0x1000 first: pad the file", ""},
		{"not x86", firmware.Options{}, func(b []byte) { b[0x54] = 3 }, "the first image has code type 03 (EFI), a VBIOS has 00", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := build(t, test.options)
			if test.edit != nil {
				test.edit(b)
				fix(b)
			}
			img, err := firmware.Parse(b)
			require.NoError(t, err)
			if reasons := joined(firmware.Check(img, 0x10de, 0x06d8)); test.check == "" {
				require.Empty(t, reasons)
			} else {
				require.Len(t, reasons, 1)
				require.Equal(t, test.check, reasons[0].(*firmware.Error).Reason)
			}
			if test.warning == "" {
				require.Empty(t, img.Warnings)
			} else {
				require.Len(t, img.Warnings, 1)
				require.Equal(t, test.warning, img.Warnings[0].Reason)
			}
		})
	}
}

func TestNoBIT(t *testing.T) {
	b := gf100(t)
	put(b, 0x80, 0)
	img, err := firmware.Parse(fix(b))
	require.NoError(t, err)
	require.Empty(t, img.Tokens)
	require.ErrorContains(t, firmware.Check(img, 0x10de, 0x06d8), "vbios: at 0x000000: BIT: not found, drivers give up without it")
}

// brokenImage is the built image with a mistake: what is wrong, and where.
type brokenImage struct {
	name string
	edit func(b []byte) []byte
	at   int
	text string
}

// Mistakes with which drivers fail.
func TestParseErrors(t *testing.T) {
	for _, test := range []brokenImage{
		{"empty file", func(b []byte) []byte { return nil }, 0, "ROM header: its 0x1a bytes end at 0x00001a, the file at 0x000000"},
		{"signature", func(b []byte) []byte { b[1] = 0; return b }, 0, "ROM header: the signature is 55 00, want 55 aa"},
		{"flash dump", func(b []byte) []byte { return append(append([]byte("NVGI"), make([]byte, 0x5fc)...), b...) }, 0,
			"the signature is 4e 56, want 55 aa: cut off what is before 0x000600"},
		{"no PCIR", func(b []byte) []byte { put(b, 0x18, 0, 0); return b }, 0x18, "ROM header.PCIR: is 0"},
		{"PCIR outside", func(b []byte) []byte { put(b, 0x18, 0xf0, 0xff); return b }, 0xfff0, "PCIR: its 0x16 bytes end at 0x010006, the file at 0x002000"},
		{"PCIR name", func(b []byte) []byte { b[0x40] = 'Q'; return b }, 0x40, "PCIR: the signature is 52494351, want 52494350 (PCIR)"},
		{"size 0", func(b []byte) []byte { put(b, 0x50, 0, 0); return b }, 0x50, "image length: is 0"},
		{"cut short", func(b []byte) []byte { return b[:0x1fff] }, 0x50, "the image at 0x000000 has 0x2000 bytes, the file only 0x1fff more: it was cut short"},
		{"PCIR beyond image", func(b []byte) []byte {
			b = append(b, b[0x40:0x58]...)
			put(b, 0x18, 0x00, 0x20)
			return b
		}, 0x18, "0x2000 lies outside the image of 0x2000 bytes"},
		{"BIT header size", func(b []byte) []byte { b[0x88] = 4; return b }, 0x88, "BIT header: header of 0x04 bytes, at least 0x0c are needed"},
		{"BIT count", func(b []byte) []byte {
			put(b, 0x82, 'X')
			put(b, 0x1ff0, 0xff, 0xb8, 'B', 'I', 'T', 0, 0, 1, 12, 6, 9)
			return b
		}, 0x1ffc, "BIT header entries: its 0x36 bytes end at 0x002032, the file at 0x002000"},
		{"'i' data", func(b []byte) []byte { put(b, 0x90, 0xf0, 0x1f); return b }, 0x1ff0, `BIT 'i' data: its 0x20 bytes end at 0x002010, the file at 0x002000 (pointer at 0x000090)`},
		{"DCB outside", func(b []byte) []byte { put(b, 0x36, 0x00, 0x20); return b }, 0x2000, "DCB: its 0xa bytes end at 0x00200a, the file at 0x002000 (pointer at 0x000036)"},
		{"DCB header", func(b []byte) []byte { b[0x301] = 10; return b }, 0x301, "DCB: header of 0x0a bytes, at least 0x17 are needed"},
		{"DCB entries", func(b []byte) []byte { put(b, 0x302, 255, 255); return b }, 0x31b, "DCB entries: its 0xfe01 bytes end at 0x01011c, the file at 0x002000"},
		{"PLL entries too small", func(b []byte) []byte { b[0x10a] = 4; return b }, 0x10a,
			"PLL table: entries of 0x04 bytes, at least 0x0b are needed"},
		{"PLL table outside", func(b []byte) []byte {
			c := le(b).token(t, 'C')
			put(b, c, 0xfe, 0x1f, 0, 0)
			return b
		}, 0x1ffe, "PLL table: its 0x4 bytes end at 0x002002"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := firmware.Parse(test.edit(gf100(t)))
			var e *firmware.Error
			require.ErrorAs(t, err, &e)
			require.ErrorContains(t, err, fmt.Sprintf("vbios: at 0x%06x: ", test.at))
			require.ErrorContains(t, err, test.text)
		})
	}
}

// Mistakes that drivers live with.
func TestParseWarnings(t *testing.T) {
	for _, test := range []brokenImage{
		{"checksum", func(b []byte) []byte { b[0x1fff]++; return b }, 0x1fff, "add up to 01, not 00"},
		{"DCB version", func(b []byte) []byte { b[0x300] = 0x22; return fix(b) }, 0x300, "version 22 is not understood"},
		{"DCB signature", func(b []byte) []byte { b[0x306] = 0; return fix(b) }, 0x306, "the signature is 4edcbd00, want 4edcbdcb"},
		{"dangling pointer", func(b []byte) []byte { put(b, 0x304, 0xff, 0xff); return fix(b) }, 0x304, "points to 0x00ffff, the file ends at 0x002000"},
		{"trailing data", func(b []byte) []byte { return append(b, 1) }, 0x2000, "0x1 bytes follow the last image"},
		{"token twice", func(b []byte) []byte { b[0x92] = 'i'; put(b, 0x93, 9); return fix(b) }, 0x92, "token 'i' comes again"},
		{"unknown token outside", func(b []byte) []byte {
			put(b, 0x8c+8*6, 'z', 1, 2, 0, 0xff, 0xff)
			return fix(b)
		}, 0xffff, "its 0x2 bytes end at 0x010001"},
		{"PLL version", func(b []byte) []byte {
			c := le(b).token(t, 'C')
			b[le(b).u32(c)] = 0x30
			return fix(b)
		}, 0x108, "version 30 is not understood"},
		{"script cut short", func(b []byte) []byte {
			init := le(b).token(t, 'I')
			put(b, le(b).u16(init), 0xfe, 0x1f)
			put(b, 0x1ffe, 0x6e)
			return fix(b)
		}, 0x1ffe, "NV_REG needs 13 bytes, the image ends after 2; it is cut off there"},
		{"token without data", func(b []byte) []byte { put(b, 0x8e, 0, 0, 0xff, 0xff); return fix(b) }, 0x8e, "has no data"},
	} {
		t.Run(test.name, func(t *testing.T) {
			img, err := firmware.Parse(test.edit(gf100(t)))
			require.NoError(t, err)
			require.Len(t, img.Warnings, 1, "%v", img.Warnings)
			require.Equal(t, test.at, img.Warnings[0].Offset)
			require.Contains(t, img.Warnings[0].Reason, test.text)
		})
	}
}

// image makes a bare ROM image: header and PCIR, at offsets of its own.
func image(size int, codeType byte, last bool) []byte {
	b := make([]byte, size)
	put(b, 0, 0x55, 0xaa, byte(size/512))
	put(b, 0x18, 0x1c)
	put(b, 0x1c, 'P', 'C', 'I', 'R', 0xde, 0x10, 0xd8, 0x06, 0, 0, 0x18, 0, 0, 0, 2, 3, byte(size/512), 0, 0, 0, codeType, 0)
	if last {
		b[0x1c+0x15] = 0x80
	}
	return b
}

func TestSeveralImages(t *testing.T) {
	first := gf100(t)
	first[0x55] = 0
	fix(first)
	efi := image(1024, 0x03, true)
	img, err := firmware.Parse(append(first, efi...))
	require.NoError(t, err)
	require.Empty(t, img.Warnings)
	require.Len(t, img.Parts, 2)
	require.Equal(t, 0x2000, img.Parts[1].Offset)
	require.Equal(t, 1024, img.Parts[1].Size)
	require.False(t, img.Parts[0].Last)
	require.True(t, img.Parts[1].Last)
	plain, err := firmware.Parse(gf100(t))
	require.NoError(t, err)
	require.Equal(t, plain.Tokens, img.Tokens, "the second image changes nothing")
}

// survives parses hostile bytes and uses all there is to use of the result.
func survives(t testing.TB, b []byte) {
	before := slices.Clone(b)
	img, err := firmware.Parse(b)
	require.True(t, bytes.Equal(before, b), "the input is left alone")
	if err != nil {
		var e *firmware.Error
		require.True(t, errors.As(err, &e))
		require.GreaterOrEqual(t, e.Offset, 0)
		require.NotEmpty(t, e.What)
		require.NotEmpty(t, e.Reason)
		require.Nil(t, img)
		return
	}
	require.NoError(t, firmware.Show(io.Discard, img))
	_ = firmware.Check(img, 0x10de, 0x06d8)
	for _, s := range img.Structures {
		if s.Offset < 0 || s.Offset+s.Size > len(b) {
			t.Fatalf("%s at %x ends outside the file", s.Name, s.Offset)
		}
	}
}

func TestEveryByteMutated(t *testing.T) {
	b := gf100(t)
	end := 0x31b // the last structure ends here
	for at := 0; at < end; at += scale.Of(11, 1) {
		for _, x := range []byte{0x00, 0xff, b[at] + 1, b[at] ^ 0x80} {
			old := b[at]
			b[at] = x
			survives(t, b)
			b[at] = old
		}
	}
}

func FuzzParse(f *testing.F) {
	plain := gf100(f)
	f.Add(plain)
	f.Add([]byte{})
	f.Add(plain[:0x200])
	f.Add(bytes.Repeat([]byte{0x55, 0xaa}, 512))
	f.Add(append(slices.Clone(plain), image(512, 0x03, true)...))
	f.Add(build(f, firmware.Options{Size: 1024}))
	f.Add(rich(f))
	f.Fuzz(func(t *testing.T, b []byte) { survives(t, b) })
}

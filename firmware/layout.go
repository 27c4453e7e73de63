package firmware

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// A row is one field of a structure: an unsigned little-endian integer, or text if it is wider than
// 4 bytes.
type row struct {
	offset, width int // in bytes
	bits          string
	name          string
	reading       string // a key of readings, or ""
	meaning       string
}

// ptr is the reading of an offset in the VBIOS, 0 for none. Offsets that count from elsewhere have
// the reading pointer.
const ptr = "ptr"

// span returns the bits that the field has of its bytes, both inclusive: row.bits, or all.
func (r row) span() (hi, lo int) {
	hi = r.width*8 - 1
	fmt.Sscanf(r.bits, "%d:%d", &hi, &lo)
	return hi, lo
}

// A layout is one structure: its rows and its full size in bytes.
type layout struct {
	name string
	size int
	rows []row
}

// values are fields of a structure by name; the others are 0.
type values map[string]uint64

// encode writes v into b, which has zeroes. A value without a field, or too large for it, is a bug.
func (l *layout) encode(b []byte, v values) {
	for name, x := range v {
		i := slices.IndexFunc(l.rows, func(r row) bool { return r.name == name })
		r := l.rows[i]
		hi, lo := r.span()
		if x>>(hi-lo+1) != 0 {
			panic(fmt.Sprintf("firmware: %s.%s: %#x does not fit", l.name, name, x))
		}
		putLE(b[r.offset:], r.width, getLE(b[r.offset:], r.width)|x<<lo)
	}
}

// decode returns the fields that b holds: older revisions of a structure are prefixes of newer ones.
func (l *layout) decode(b []byte) []Field {
	var out []Field
	for _, r := range l.rows {
		if r.offset+r.width > len(b) {
			continue
		}
		field := Field{Offset: r.offset, Width: r.width, Bits: r.bits, Name: r.name, Meaning: r.meaning, isPtr: r.reading == ptr}
		if r.width > 4 {
			field.Text = fmt.Sprintf("%q", strings.TrimRight(string(b[r.offset:r.offset+r.width]), "\x00"))
			out = append(out, field)
			continue
		}
		hi, lo := r.span()
		field.Value = getLE(b[r.offset:], r.width) >> lo & (1<<(hi-lo+1) - 1)
		field.Hex = fmt.Sprintf("%0*x", (hi-lo+4)/4, field.Value)
		if text := readings[r.reading]; text != nil {
			field.Text = text(field.Value)
		}
		out = append(out, field)
	}
	return out
}

// field finds a field by name. A structure that is too short has it as 0.
func (s *Structure) field(name string) Field {
	i := slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}
	}
	return s.Fields[i]
}

func (s *Structure) value(name string) int { return int(s.field(name).Value) }

// at is the offset of a field in the file.
func (s *Structure) at(name string) int { return s.Offset + s.field(name).Offset }

func getLE(b []byte, width int) uint64 {
	var x uint64
	for i := range width {
		x |= uint64(b[i]) << (8 * i)
	}
	return x
}

func putLE(b []byte, width int, x uint64) {
	for i := range width {
		b[i] = byte(x >> (8 * i))
	}
}

// readings print values in words.
var readings = map[string]func(uint64) string{
	ptr: pointer, "pointer": pointer,
	"decimal":  func(x uint64) string { return fmt.Sprint(x) },
	"mhz":      func(x uint64) string { return fmt.Sprintf("%d MHz", x) },
	"bytes512": func(x uint64) string { return fmt.Sprintf("0x%06x bytes", x*512) },
	"text4":    func(x uint64) string { return fmt.Sprintf("%q", binary.LittleEndian.AppendUint32(nil, uint32(x))) },
	"version8": func(x uint64) string { return fmt.Sprintf("%d.%d", x>>4, x&15) }, // as NVIDIA writes it: 0x41 is 4.1
	"class":    className, "code": codeTypeName, "last": lastName,
	"output": outputTypeName, "memory": memoryTypeName, "pll": pllTypeName,
	"location": oneOf(map[uint64]string{0: "chip", 1: "board"}),
	"match":    oneOf(map[uint64]string{0: "by RAM strap"}),
}

func pointer(x uint64) string {
	if x == 0 {
		return "none"
	}
	return fmt.Sprintf("-> %06x", x)
}

// oneOf names the values of a field.
func oneOf(names map[uint64]string) func(uint64) string {
	return func(x uint64) string {
		if s, ok := names[x]; ok {
			return s
		}
		return "unknown"
	}
}

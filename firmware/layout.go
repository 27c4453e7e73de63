package firmware

import (
	"fmt"
	"reflect"
	"strings"
)

// A row is one field of a structure in the image. Its name is the name of the
// Go field that holds the value: an unsigned integer, or a string for text.
type row struct {
	offset  int // bytes from the start of the structure
	width   int // bytes
	hi, lo  int // bit range within the width, both inclusive
	name    string
	meaning string
	text    func(uint64) string // prints the value in words, may be nil
	isPtr   bool                // an offset in the VBIOS, 0 for none
}

// f is a field that fills its width.
func f(offset, width int, name, meaning string) row {
	return row{offset: offset, width: width, hi: width*8 - 1, name: name, meaning: meaning}
}

// bits is a field of bits hi:lo in a word of width bytes.
func bits(offset, width, hi, lo int, name, meaning string) row {
	return row{offset: offset, width: width, hi: hi, lo: lo, name: name, meaning: meaning}
}

// as adds a reading in words.
func (r row) as(text func(uint64) string) row {
	r.text = text
	return r
}

// ptr marks an offset in the VBIOS.
func (r row) ptr() row {
	r.text, r.isPtr = pointer, true
	return r
}

func (r row) whole() bool { return r.lo == 0 && r.hi == r.width*8-1 }

// max is the largest value the field holds.
func (r row) max() uint64 { return 1<<(r.hi-r.lo+1) - 1 }

// A layout is one structure: its rows and its full size in bytes. T is the Go
// type that holds its values.
type layout[T any] struct {
	name string
	size int
	rows []row
}

// encode writes v's fields into b, which is at least l.size long. at is b's
// offset in the image, for errors.
func (l layout[T]) encode(b []byte, at int, v *T) error {
	val := reflect.ValueOf(v).Elem()
	for _, r := range l.rows {
		fv := val.FieldByName(r.name)
		if fv.Kind() == reflect.String {
			if len(fv.String()) > r.width {
				return errorf(at+r.offset, l.name+"."+r.name, "%q has %d bytes, the field holds %d", fv.String(), len(fv.String()), r.width)
			}
			copy(b[r.offset:r.offset+r.width], fv.String())
			continue
		}
		x := fv.Uint()
		if x > r.max() {
			return errorf(at+r.offset, l.name+"."+r.name, "0x%x does not fit, the largest value is 0x%x", x, r.max())
		}
		word := getLE(b[r.offset:], r.width)
		word = word&^(r.max()<<r.lo) | x<<r.lo
		putLE(b[r.offset:], r.width, word)
	}
	return nil
}

// decode reads v's fields from b. A field that b is too short for keeps its
// zero value: older revisions of a structure are prefixes of newer ones.
func (l layout[T]) decode(b []byte, v *T) {
	val := reflect.ValueOf(v).Elem()
	for _, r := range l.rows {
		if r.offset+r.width > len(b) {
			continue
		}
		fv := val.FieldByName(r.name)
		if fv.Kind() == reflect.String {
			fv.SetString(strings.TrimRight(string(b[r.offset:r.offset+r.width]), "\x00"))
			continue
		}
		fv.SetUint(getLE(b[r.offset:], r.width) >> r.lo & r.max())
	}
}

// show lists the fields that b holds.
func (l layout[T]) show(b []byte) []Field {
	var out []Field
	for _, r := range l.rows {
		if r.offset+r.width > len(b) {
			continue
		}
		field := Field{Offset: r.offset, Width: r.width, Name: r.name, Meaning: r.meaning, isPtr: r.isPtr}
		if !r.whole() {
			field.Bits = fmt.Sprintf("%d:%d", r.hi, r.lo)
		}
		if r.width > 4 {
			s := strings.TrimRight(string(b[r.offset:r.offset+r.width]), "\x00")
			field.Text = fmt.Sprintf("%q", s)
			out = append(out, field)
			continue
		}
		field.Value = getLE(b[r.offset:], r.width) >> r.lo & r.max()
		digits := (r.hi - r.lo + 4) / 4
		field.Hex = fmt.Sprintf("%0*x", digits, field.Value)
		if r.text != nil {
			field.Text = r.text(field.Value)
		}
		out = append(out, field)
	}
	return out
}

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

// Readings in words, for rows.

func mhz(x uint64) string { return fmt.Sprintf("%d MHz", x) }
func text4(x uint64) string {
	return fmt.Sprintf("%q", []byte{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24)})
}
func bytes512(x uint64) string {
	return fmt.Sprintf("0x%06x bytes", x*512)
}
func decimal(x uint64) string { return fmt.Sprint(x) }

func pointer(x uint64) string {
	if x == 0 {
		return "none"
	}
	return "-> " + fmt.Sprintf("%06x", x)
}

// version8 reads a version byte as NVIDIA writes it: 0x41 is 4.1.
func version8(x uint64) string { return fmt.Sprintf("%d.%d", x>>4, x&15) }

// oneOf names the values of a field.
func oneOf(names map[uint64]string) func(uint64) string {
	return func(x uint64) string {
		if s, ok := names[x]; ok {
			return s
		}
		return "unknown"
	}
}

package firmware

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
)

// A row is one field of a structure in the image: a field of a Go structure, an unsigned integer
// or a string, with tags:
//
//	rom:"OFFSET[.WIDTH] [HIGH:LOW] [READING]" means:"MEANING"
//
// Offset and width are in bytes, the offset in hexadecimal; the width is the type's if omitted.
// HIGH:LOW are the bits within the width, both inclusive, all if omitted. READING names one of
// readings, or is ptr: an offset in the VBIOS, 0 for none.
type row struct {
	index   []int // of the field
	offset  int
	width   int
	hi, lo  int
	name    string
	meaning string
	text    func(uint64) string // prints the value in words, may be nil
	isPtr   bool
}

func (r row) whole() bool { return r.lo == 0 && r.hi == r.width*8-1 }

// max is the largest value the field holds.
func (r row) max() uint64 { return 1<<(r.hi-r.lo+1) - 1 }

// A layout is one structure: its rows and its full size in bytes. T is the Go type that holds its
// values.
type layout[T any] struct {
	name string
	size int
	rows []row
}

// layoutOf reads the tags of T, whose structure has a name and a size in bytes.
func layoutOf[T any](name string, size int) layout[T] {
	l := layout[T]{name: name, size: size}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		tag, ok := f.Tag.Lookup("rom")
		if !ok {
			continue
		}
		r := row{index: f.Index, name: f.Name, meaning: f.Tag.Get("means"), width: int(f.Type.Size())}
		words := strings.Fields(tag)
		if n, _ := fmt.Sscanf(words[0], "%x.%d", &r.offset, &r.width); n == 0 {
			panic("firmware: " + name + "." + f.Name + ": no offset in its tag")
		}
		r.hi = r.width*8 - 1
		for _, word := range words[1:] {
			if n, _ := fmt.Sscanf(word, "%d:%d", &r.hi, &r.lo); n == 2 {
				continue
			}
			if r.isPtr = word == "ptr"; r.isPtr {
				word = "pointer"
			}
			if r.text = readings[word]; r.text == nil {
				panic("firmware: " + name + "." + f.Name + ": unknown reading " + word)
			}
		}
		l.rows = append(l.rows, r)
	}
	return l
}

// encode writes v's fields into b, which is at least l.size long. at is b's
// offset in the image, for errors.
func (l layout[T]) encode(b []byte, at int, v *T) error {
	val := reflect.ValueOf(v).Elem()
	for _, r := range l.rows {
		fv := val.FieldByIndex(r.index)
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
		fv := val.FieldByIndex(r.index)
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

// readings print values in words.
var readings = map[string]func(uint64) string{
	"pointer": func(x uint64) string {
		if x == 0 {
			return "none"
		}
		return fmt.Sprintf("-> %06x", x)
	},
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

// oneOf names the values of a field.
func oneOf(names map[uint64]string) func(uint64) string {
	return func(x uint64) string {
		if s, ok := names[x]; ok {
			return s
		}
		return "unknown"
	}
}

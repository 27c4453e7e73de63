// Package methods reads tables of the methods of object classes. A table is text with a row for each method, in the
// order of their offsets:
//
//	# where the rows come from
//	0204 SET_SRC_BLOCK_SIZE 00000fff
//	3800 CALL_MME_MACRO ffffffff 8 128
//
// A row has the method's offset in bytes, its name and the bits of its data that are declared. An array of methods also
// has the distance of two elements in bytes and the number of elements, both decimal.
package methods

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Row is a method or an array of methods.
type Row struct {
	Offset uint32 // of the first element, in bytes
	Name   string // without the class prefix
	Mask   uint32 // the bits that are declared
	Stride uint32 // distance of two elements in bytes, 0 if there is one
	Count  uint32
}

// Parse reads a table.
func Parse(table string) ([]Row, error) {
	var rows []Row
	number := 0
	for line := range strings.Lines(table) {
		number++
		if strings.HasPrefix(line, "#") {
			continue
		}
		row, err := parse(strings.Fields(line))
		if err == nil && len(rows) > 0 && row.Offset <= rows[len(rows)-1].Offset {
			err = errors.New("the offset must be greater than that of the row before")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", number, strings.TrimSpace(line), err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func parse(fields []string) (Row, error) {
	r := Row{Count: 1}
	if len(fields) != 3 && len(fields) != 5 {
		return r, errors.New("want offset, name and mask, and for an array also stride and count")
	}
	r.Name = fields[1]
	err := errors.Join(number(&r.Offset, fields[0], 16), number(&r.Mask, fields[2], 16))
	if array := fields[3:]; len(array) > 0 {
		err = errors.Join(err, number(&r.Stride, array[0], 10), number(&r.Count, array[1], 10))
		if r.Stride == 0 || r.Count < 2 {
			err = errors.Join(err, errors.New("an array has a stride and at least two elements"))
		}
	}
	switch {
	case strings.Trim(r.Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "":
		err = errors.Join(err, errors.New("a name has letters A to Z, digits and underscores"))
	case r.Offset%4 != 0 || r.Stride%4 != 0:
		err = errors.Join(err, errors.New("offset and stride are multiples of 4"))
	case r.Mask == 0:
		err = errors.Join(err, errors.New("a method has at least one bit"))
	}
	return r, err
}

func number(to *uint32, text string, base int) error {
	n, err := strconv.ParseUint(text, base, 32)
	*to = uint32(n)
	return err
}

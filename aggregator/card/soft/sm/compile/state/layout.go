package state

import "reflect"

// Layout is where a field of a type of this package is, for those who write code that uses it.
func Layout[T any](field string) uintptr {
	f, ok := reflect.TypeFor[T]().FieldByName(field)
	if !ok {
		panic("state: no field " + field)
	}
	return f.Offset
}

// HeaderSize is where a block's warps begin, WarpSize the distance of two.
const (
	HeaderSize = headerSize
	WarpSize   = warpSize
)

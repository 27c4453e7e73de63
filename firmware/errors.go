package firmware

import "fmt"

// NoOffset is the Offset of an Error about a Description, which has no bytes yet.
const NoOffset = -1

// Error is the reason why an image was refused, or a Description not built.
type Error struct {
	Offset int    `json:"offset"` // byte offset in the file of the structure or field at fault; NoOffset if there is none
	What   string `json:"what"`   // the structure or field
	Reason string `json:"reason"` // what is wrong with it, and what would be right
}

func (e *Error) Error() string {
	if e.Offset == NoOffset {
		return fmt.Sprintf("vbios: %s: %s", e.What, e.Reason)
	}
	return fmt.Sprintf("vbios: at 0x%06x: %s: %s", e.Offset, e.What, e.Reason)
}

func errorf(offset int, what, format string, args ...any) *Error {
	return &Error{Offset: offset, What: what, Reason: fmt.Sprintf(format, args...)}
}

// Warning is a mistake in an image that drivers are known to tolerate.
type Warning struct {
	Offset int    `json:"offset"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

func (w Warning) String() string {
	return fmt.Sprintf("at 0x%06x: %s: %s", w.Offset, w.What, w.Reason)
}

package doorbell

import (
	"fmt"
	"slices"
	"strings"
)

// Mode says how doorbells are heard.
type Mode uint8

// The modes.
const (
	Trap Mode = iota // each is a trapped write
	Poll             // the poll area is mapped, and looked at
)

// Modes are their names.
var Modes = [...]string{Trap: "trap", Poll: "poll"}

func (m Mode) String() string { return Modes[m] }

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(text []byte) error {
	i := slices.Index(Modes[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no way to hear doorbells; say %s", text, strings.Join(Modes[:], " or "))
	}
	*m = Mode(i)
	return nil
}

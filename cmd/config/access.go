package config

import (
	"fmt"
	"strconv"
)

// Access says who may connect to a socket that the server makes. A socket that the parent process opened
// stays as it is.
type Access struct {
	Mode  Mode   `yaml:"mode" placeholder:"MODE" default:"0600" help:"Permissions of the socket's file, in octal digits. Write permission lets a client connect: 0600 the owner, 0660 also the group, 0666 everyone."`
	User  string `yaml:"user" placeholder:"NAME" help:"User, by name or number, who owns the socket's file. By default it is the user who starts the server; another one takes root or CAP_CHOWN."`
	Group string `yaml:"group" placeholder:"NAME" help:"Group, by name or number, of the socket's file; give mode=0660 too. Without root it must be a group of the user who starts the server."`
}

// Mode is the permissions of a socket's file, written in octal digits: 0660.
type Mode uint32

// writers are the permissions of which a socket needs one: connecting takes write permission.
const writers = 0o222

// String writes the mode.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	switch {
	case err != nil || n > 0o777 || len(text) < 3:
		return fmt.Errorf("%q is not a mode; write the permissions in octal digits: 0600, 0660 or 0666", text)
	case n&writers == 0:
		return fmt.Errorf("%q lets nobody connect, which takes write permission; write 0600, 0660 or 0666", text)
	}
	*m = Mode(n)
	return nil
}

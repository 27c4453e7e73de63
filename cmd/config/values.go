package config

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written with a unit: 512MiB, 1GiB.
type Size uint64

// units are those of sizes, each 1024 times the one before.
var units = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// String writes the size in the largest unit that it is a multiple of.
func (s Size) String() string {
	i := min(bits.TrailingZeros64(uint64(s))/10, len(units)-1)
	if s == 0 {
		i = 0
	}
	return fmt.Sprintf("%d%s", uint64(s)>>(10*i), units[i])
}

var sizeText = regexp.MustCompile(`^\s*(-?)([0-9]+) *(B|KiB|MiB|GiB|TiB)\s*$`)

// UnmarshalText implements encoding.TextUnmarshaler. The unit must be there:
// nobody means 512 bytes by a VRAM of 512.
func (s *Size) UnmarshalText(text []byte) error {
	m := sizeText.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("%q is not a size; write a whole number and a unit: 512MiB, 1GiB (KiB, MiB, GiB, TiB; B for bytes)", text)
	}
	if m[1] != "" {
		return fmt.Errorf("%q is below zero", text)
	}
	n, err := strconv.ParseUint(m[2], 10, 64)
	shift := 10 * slices.Index(units, m[3])
	if err != nil || bits.Len64(n)+shift > 64 {
		return fmt.Errorf("%q is larger than %s, the largest size there is", text, Size(math.MaxUint64&^(1<<40-1)))
	}
	*s = Size(n << shift)
	return nil
}

// Percent is a part of a hundred, written 50 or 50%.
type Percent int

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(strings.TrimSuffix(string(text), "%"))
	if err != nil {
		return fmt.Errorf("%q is not a whole number of percent; write 50, or 50%%", text)
	}
	*p = Percent(n)
	return nil
}

// ParseTime reads a time. A number alone is refused with what it would be with a unit, because
// nobody can know which is meant.
func ParseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if _, err := time.ParseDuration(text + "ms"); err == nil {
		return 0, fmt.Errorf("%q is not a time, it has no unit; write %sms, %sus or %ss", text, text, text, text)
	}
	return 0, fmt.Errorf("%q is not a time; write a number and a unit: 500us, 30ms, 10s", text)
}

// timeText writes a time as the defaults are written: 500us, 1.5s, 60s.
func timeText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return strings.Replace(d.String(), "µ", "u", 1)
}

// Address is a TCP address, written 127.0.0.1:9101 or :9101.
type Address string

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Address) UnmarshalText(text []byte) error {
	_, port, err := net.SplitHostPort(string(text))
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 {
		return fmt.Errorf("%q is not an address with a port; write 127.0.0.1:9101, or :9101 for every address of this machine", text)
	}
	*a = Address(text)
	return nil
}

// Counts is a list of numbers, written with commas: 4,4,3,3.
type Counts []int

// String writes the numbers with commas.
func (c Counts) String() string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint([]int(c)), "[]"), " ", ",")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Counts) UnmarshalText(text []byte) error {
	var out Counts
	for part := range strings.SplitSeq(string(text), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("%q is not a list of numbers; write them with commas: 4,4,3,3", text)
		}
		out = append(out, n)
	}
	*c = out
	return nil
}

// ID is a PCI device id, written as four hexadecimal digits.
type ID uint16

// String writes the id.
func (d ID) String() string { return fmt.Sprintf("%04x", uint16(d)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *ID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 16)
	if err != nil || n == 0 || len(text) != 4 {
		return fmt.Errorf("%q is not a PCI id; write four hexadecimal digits: 06d8", text)
	}
	*d = ID(n)
	return nil
}

// Subsystem is a PCI subsystem: who built the board, and which of theirs it is.
type Subsystem struct{ Vendor, ID ID }

// String writes both ids.
func (s Subsystem) String() string { return s.Vendor.String() + ":" + s.ID.String() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Subsystem) UnmarshalText(text []byte) error {
	vendor, id, _ := strings.Cut(string(text), ":")
	var out Subsystem
	if errors.Join(out.Vendor.UnmarshalText([]byte(vendor)), out.ID.UnmarshalText([]byte(id))) != nil {
		return fmt.Errorf("%q is not a PCI subsystem; write the ids of vendor and board: 10de:076f", text)
	}
	*s = out
	return nil
}

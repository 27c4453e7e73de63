package aperture

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a window, the one with the highest priority first.
type Kind uint8

// The windows.
const (
	BAR3 Kind = iota
	BAR1      // beyond the poll area
	PRAMIN

	Kinds = 3
)

var kindNames = [Kinds]string{"bar3", "bar1", "pramin"}

func (k Kind) String() string { return kindNames[k] }

// Map says what a guest's machine may map.
type Map uint8

// The parts that can be mapped.
const (
	MapBAR1 Map = 1 << iota
	MapBAR3
	MapPRAMIN
	MapROM

	MapNone Map = 0
	MapAll      = MapBAR1 | MapBAR3 | MapPRAMIN | MapROM
)

var mapBits = []struct {
	name string
	bit  Map
}{{"bar1", MapBAR1}, {"bar3", MapBAR3}, {"pramin", MapPRAMIN}, {"rom", MapROM}}

var kindMaps = [Kinds]Map{BAR3: MapBAR3, BAR1: MapBAR1, PRAMIN: MapPRAMIN}

// mapNames lists what ParseMap accepts besides "none" and "all".
func mapNames() []string {
	var out []string
	for _, m := range mapBits {
		out = append(out, m.name)
	}
	return out
}

// ParseMap reads a list of names with commas between: "none", "all", or any of
// bar1, bar3, pramin, rom.
func ParseMap(text string) (Map, error) {
	switch text {
	case "none":
		return MapNone, nil
	case "all":
		return MapAll, nil
	}
	var m Map
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		i := slices.Index(mapNames(), name)
		switch {
		case name == "none" || name == "all":
			return 0, fmt.Errorf("none and all stand alone; say one of them, or any of %s", strings.Join(mapNames(), ", "))
		case i < 0:
			return 0, fmt.Errorf("%q cannot be mapped; say none, all, or any of %s", name, strings.Join(mapNames(), ", "))
		}
		if m&mapBits[i].bit != 0 {
			return 0, fmt.Errorf("%s is there twice; say it once", name)
		}
		m |= mapBits[i].bit
	}
	return m, nil
}

// String is the reverse of ParseMap.
func (m Map) String() string {
	switch m {
	case MapNone:
		return "none"
	case MapAll:
		return "all"
	}
	var out []string
	for _, n := range mapBits {
		if m&n.bit != 0 {
			out = append(out, n.name)
		}
	}
	return strings.Join(out, ",")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Map) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMap(string(text))
	return err
}

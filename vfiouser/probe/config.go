package probe

import (
	"fmt"
	"strings"
)

// Config is what a PCI configuration space of header type 0 says about its function. What a driver
// sets there is left out: the function has no driver while a probe is its client.
type Config struct {
	Vendor       uint16       `json:"vendor"`
	Device       uint16       `json:"device"`
	Class        uint32       `json:"class"` // 24 bits: base, sub, interface
	ClassName    string       `json:"class_name"`
	Revision     uint8        `json:"revision"`
	SubVendor    uint16       `json:"subsystem_vendor"`
	Subsystem    uint16       `json:"subsystem"`
	Capabilities []Capability `json:"capabilities"`
	Faults       []string     `json:"faults,omitempty"` // errors in the capability lists
}

// Capability is an entry of one of the two lists.
type Capability struct {
	Offset   int    `json:"offset"`
	ID       uint16 `json:"id"`
	Extended bool   `json:"extended,omitempty"`
	Version  uint8  `json:"version,omitempty"` // of an extended one
	Name     string `json:"name"`
}

var classNames = map[uint32]string{
	0x0106: "SATA controller", 0x0108: "Non-Volatile memory controller", 0x0200: "Ethernet controller", 0x0280: "Network controller",
	0x0300: "VGA compatible controller", 0x0302: "3D controller", 0x0380: "Display controller", 0x0403: "Audio device",
	0x0880: "System peripheral", 0x0c03: "USB controller", 0x1200: "Processing accelerators",
}

var standardNames = map[uint16]string{
	1: "Power Management", 3: "Vital Product Data", 5: "MSI", 9: "Vendor Specific Information", 0x10: "Express", 0x11: "MSI-X",
	0x13: "PCI Advanced Features",
}

var extendedNames = map[uint16]string{
	1: "Advanced Error Reporting", 2: "Virtual Channel", 3: "Device Serial Number", 0xb: "Vendor Specific Information",
	0xd: "Access Control Services", 0xe: "Alternative Routing-ID Interpretation", 0xf: "Address Translation Service",
	0x10: "Single Root I/O Virtualization", 0x13: "Page Request Interface", 0x15: "Physical Resizable BAR", 0x1b: "Process Address Space ID",
}

// Offsets in configuration space.
const (
	offStatus       = 0x06
	offRevision     = 0x08
	offBARs         = 0x10
	offSubsystem    = 0x2c
	offCapabilities = 0x34
	offExtended     = 0x100
)

const statusHasCapabilities = 0x10

// Decode decodes p, a configuration space of at least 64 bytes.
func Decode(p []byte) *Config {
	c := &Config{
		Vendor: le.Uint16(p), Device: le.Uint16(p[2:]), Revision: p[offRevision], Class: le.Uint32(p[offRevision:]) >> 8,
		SubVendor: le.Uint16(p[offSubsystem:]), Subsystem: le.Uint16(p[offSubsystem+2:]), Capabilities: []Capability{},
	}
	c.ClassName = classNames[c.Class>>8]
	if c.ClassName == "" {
		c.ClassName = fmt.Sprintf("Class %04x", c.Class>>8)
	}
	if p[offStatus]&statusHasCapabilities != 0 {
		c.list(p[:min(len(p), offExtended)], int(p[offCapabilities])&^3, 0x40, standard)
	}
	if len(p) > offExtended {
		c.list(p, offExtended, offExtended, extended)
	}
	return c
}

// list walks a list of capabilities from at on, which lie above least.
func (c *Config) list(p []byte, at, least int, decode func(p []byte, at int) (k Capability, next int)) {
	for seen := map[int]bool{}; at != 0; {
		switch {
		case at < least || at+4 > len(p):
			c.Faults = append(c.Faults, fmt.Sprintf("capability at %#x: outside of %#x-%#x", at, least, len(p)-1))
			return
		case seen[at]:
			c.Faults = append(c.Faults, fmt.Sprintf("capability at %#x: the list is a cycle", at))
			return
		}
		seen[at] = true
		k, next := decode(p, at)
		if k.Name != "" {
			c.Capabilities = append(c.Capabilities, k)
		}
		at = next &^ 3
	}
}

func standard(p []byte, at int) (k Capability, next int) {
	id := uint16(p[at])
	return Capability{Offset: at, ID: id, Name: capabilityName(standardNames, id)}, int(p[at+1])
}

func extended(p []byte, at int) (k Capability, next int) {
	v := le.Uint32(p[at:])
	if v == 0 || v == 0xffffffff { // the list is empty
		return k, 0
	}
	id := uint16(v)
	return Capability{at, id, true, uint8(v>>16) & 0xf, capabilityName(extendedNames, id)}, int(v >> 20)
}

func capabilityName(names map[uint16]string, id uint16) string {
	if n := names[id]; n != "" {
		return n
	}
	return fmt.Sprintf("unknown %#02x", id)
}

// barKind is the kind of address that BAR i decodes.
func barKind(p []byte, i uint32) string {
	v := p[offBARs+4*i]
	if v&1 != 0 {
		return "I/O ports"
	}
	kind := "32-bit"
	if v&6 == 4 {
		kind = "64-bit"
	}
	if v&8 != 0 {
		kind += " prefetchable"
	}
	return kind
}

// Text writes c in the style of lspci, with numbers for vendors and devices.
func (c *Config) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s [%04x]: %04x:%04x (rev %02x)", c.ClassName, c.Class>>8, c.Vendor, c.Device, c.Revision)
	if i := c.Class & 0xff; i != 0 {
		fmt.Fprintf(&b, " (prog-if %02x)", i)
	}
	fmt.Fprintf(&b, "\n    Subsystem: %04x:%04x\n", c.SubVendor, c.Subsystem)
	for _, k := range c.Capabilities {
		fmt.Fprintf(&b, "    Capabilities: [%02x", k.Offset)
		if k.Extended {
			fmt.Fprintf(&b, " v%d", k.Version)
		}
		fmt.Fprintf(&b, "] %s\n", k.Name)
	}
	for _, f := range c.Faults {
		fmt.Fprintf(&b, "    wrong: %s\n", f)
	}
	return b.String()
}

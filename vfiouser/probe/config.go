package probe

import (
	"fmt"
	"strings"
)

// Config is a decoded PCI configuration space of header type 0. Names and bits are those of the
// PCI specifications, abbreviated as lspci does.
type Config struct {
	Vendor       uint16       `json:"vendor"`
	Device       uint16       `json:"device"`
	Class        uint32       `json:"class"` // 24 bits: base, sub, interface
	ClassName    string       `json:"class_name"`
	Revision     uint8        `json:"revision"`
	SubVendor    uint16       `json:"subsystem_vendor"`
	Subsystem    uint16       `json:"subsystem"`
	Command      uint16       `json:"command"`
	Status       uint16       `json:"status"`
	Line         uint8        `json:"interrupt_line"`
	Pin          uint8        `json:"interrupt_pin"`
	BARs         []BAR        `json:"bars"`
	ROM          uint32       `json:"rom,omitempty"`
	Capabilities []Capability `json:"capabilities"`
	Faults       []string     `json:"faults,omitempty"` // errors in the capability lists
}

// BAR is a base address register that is in use.
type BAR struct {
	Index        int    `json:"index"`
	Address      uint64 `json:"address"`        // 0 if none is assigned
	Size         uint64 `json:"size,omitempty"` // of the region; 0 if unknown
	IO           bool   `json:"io"`
	Is64         bool   `json:"is_64bit"`
	Prefetchable bool   `json:"prefetchable"`
}

// Capability is an entry of one of the two lists.
type Capability struct {
	Offset   int      `json:"offset"`
	ID       uint16   `json:"id"`
	Extended bool     `json:"extended,omitempty"`
	Version  uint8    `json:"version,omitempty"` // of an extended one
	Name     string   `json:"name"`
	Lines    []string `json:"lines,omitempty"` // details
}

// signed lists all flags, each with + or -.
func signed(v uint32, flags []flag) string {
	out := make([]string, len(flags))
	for i, f := range flags {
		out[i] = f.name + map[bool]string{true: "+", false: "-"}[v&f.mask != 0]
	}
	return strings.Join(out, " ")
}

var commandBits = []flag{
	{1, "I/O"}, {2, "Mem"}, {4, "BusMaster"}, {8, "SpecCycle"}, {0x10, "MemWINV"}, {0x20, "VGASnoop"},
	{0x40, "ParErr"}, {0x80, "Stepping"}, {0x100, "SERR"}, {0x200, "FastB2B"}, {0x400, "DisINTx"},
}

var statusBits = []flag{
	{0x10, "Cap"}, {0x20, "66MHz"}, {0x40, "UDF"}, {0x80, "FastB2B"}, {0x100, "ParErr"},
	{0x800, ">TAbort"}, {0x1000, "<TAbort"}, {0x2000, "<MAbort"}, {0x4000, ">SERR"}, {0x8000, "<PERR"}, {0x8, "INTx"},
}

var classNames = map[uint16]string{
	0x0106: "SATA controller", 0x0108: "Non-Volatile memory controller", 0x0200: "Ethernet controller", 0x0280: "Network controller",
	0x0300: "VGA compatible controller", 0x0302: "3D controller", 0x0380: "Display controller", 0x0403: "Audio device",
	0x0880: "System peripheral", 0x0c03: "USB controller", 0x1200: "Processing accelerators",
}

// Offsets in the header.
const (
	offCommand, offStatus = 0x04, 0x06
	offRevision           = 0x08
	offBARs               = 0x10
	offSubsystem          = 0x2c
	offROM                = 0x30
	offCapabilities       = 0x34
	offLine, offPin       = 0x3c, 0x3d
	offExtended           = 0x100
	statusHasCapabilities = 0x10
)

// Decode decodes p, a configuration space of at least 64 bytes. The regions, if any, give the
// sizes of BARs.
func Decode(p []byte, regions []Region) *Config {
	c := &Config{
		Vendor: le.Uint16(p), Device: le.Uint16(p[2:]), Command: le.Uint16(p[offCommand:]), Status: le.Uint16(p[offStatus:]),
		Revision: p[offRevision], Class: le.Uint32(p[offRevision:]) >> 8,
		SubVendor: le.Uint16(p[offSubsystem:]), Subsystem: le.Uint16(p[offSubsystem+2:]), ROM: le.Uint32(p[offROM:]), Line: p[offLine], Pin: p[offPin],
		Capabilities: []Capability{}, BARs: []BAR{},
	}
	c.ClassName = classNames[uint16(c.Class>>8)]
	if c.ClassName == "" {
		c.ClassName = fmt.Sprintf("Class %04x", c.Class>>8)
	}
	c.bars(p, regions)
	if c.Status&statusHasCapabilities != 0 {
		c.list(p[:min(len(p), offExtended)], int(p[offCapabilities])&^3, 0x40, c.capability)
	}
	if len(p) > offExtended {
		c.list(p, offExtended, offExtended, c.extended)
	}
	return c
}

func (c *Config) bars(p []byte, regions []Region) {
	var sizes [6]uint64
	for _, r := range regions {
		if int(r.Index) < len(sizes) {
			sizes[r.Index] = r.Size
		}
	}
	for i := 0; i < len(sizes); i++ {
		v := le.Uint32(p[offBARs+4*i:])
		if v == 0 && sizes[i] == 0 {
			continue
		}
		b := BAR{Index: i, IO: v&1 != 0, Size: sizes[i]}
		if b.IO {
			b.Address = uint64(v &^ 3)
			c.BARs = append(c.BARs, b)
			continue
		}
		b.Address, b.Is64, b.Prefetchable = uint64(v&^0xf), v&6 == 4, v&8 != 0
		if b.Is64 && i < 5 {
			i++
			b.Address |= uint64(le.Uint32(p[offBARs+4*i:])) << 32
		}
		c.BARs = append(c.BARs, b)
	}
}

func (c *Config) fault(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

// list walks a list of capabilities from at on, which lie above least.
func (c *Config) list(p []byte, at, least int, decode func(p []byte, at int) (next int)) {
	for seen := map[int]bool{}; at != 0; at = decode(p, at) {
		switch {
		case at < least || at+4 > len(p):
			c.fault("capability at %#x: outside of %#x-%#x", at, least, len(p)-1)
			return
		case seen[at]:
			c.fault("capability at %#x: the list is a cycle", at)
			return
		}
		seen[at] = true
	}
}

func (c *Config) capability(p []byte, at int) int {
	id := uint16(p[at])
	k := Capability{Offset: at, ID: id, Name: fmt.Sprintf("unknown %#02x", id)}
	if d, ok := standard[id]; ok {
		k.Name = d.name
		if d.least > 0 && at+d.least <= len(p) {
			k.Lines = d.decode(p[at:])
		} else if d.least > 0 {
			c.fault("%s at %#x: cut off", d.name, at)
		}
	}
	c.Capabilities = append(c.Capabilities, k)
	return int(p[at+1]) &^ 3
}

func (c *Config) extended(p []byte, at int) int {
	v := le.Uint32(p[at:])
	if v == 0 || v == 0xffffffff { // the list is empty
		return 0
	}
	k := Capability{Offset: at, ID: uint16(v), Extended: true, Version: uint8(v>>16) & 0xf, Name: extendedNames[uint16(v)]}
	if k.Name == "" {
		k.Name = fmt.Sprintf("unknown %#04x", k.ID)
	}
	c.Capabilities = append(c.Capabilities, k)
	return int(v>>20) &^ 3
}

var extendedNames = map[uint16]string{
	1: "Advanced Error Reporting", 2: "Virtual Channel", 3: "Device Serial Number", 0xb: "Vendor Specific Information",
	0xd: "Access Control Services", 0xe: "Alternative Routing-ID Interpretation", 0xf: "Address Translation Service",
	0x10: "Single Root I/O Virtualization", 0x13: "Page Request Interface", 0x15: "Physical Resizable BAR", 0x1b: "Process Address Space ID",
}

// standard are the capabilities by id; decode needs least bytes.
var standard = map[uint16]struct {
	name   string
	least  int
	decode func(p []byte) []string
}{
	1:    {"Power Management", 6, powerManagement},
	3:    {"Vital Product Data", 0, nil},
	5:    {"MSI", 10, msi},
	9:    {"Vendor Specific Information", 3, func(p []byte) []string { return []string{fmt.Sprintf("Len=%02x", p[2])} }},
	0x10: {"Express", 20, express},
	0x11: {"MSI-X", 12, msix},
	0x13: {"PCI Advanced Features", 0, nil},
}

func powerManagement(p []byte) []string {
	c, v := le.Uint16(p[2:]), le.Uint16(p[4:])
	return []string{fmt.Sprintf("version %d, state D%d", c&7, v&3)}
}

func msi(p []byte) []string {
	c := uint32(le.Uint16(p[2:]))
	out := []string{fmt.Sprintf("%s Count=%d/%d", signed(c, []flag{{1, "Enable"}, {0x100, "Maskable"}, {0x80, "64bit"}}), 1<<(c>>4&7), 1<<(c>>1&7))}
	if c&0x80 != 0 && len(p) >= 14 {
		return append(out, fmt.Sprintf("Address: %016x  Data: %04x", le.Uint64(p[4:]), le.Uint16(p[12:])))
	}
	return append(out, fmt.Sprintf("Address: %08x  Data: %04x", le.Uint32(p[4:]), le.Uint16(p[8:])))
}

func msix(p []byte) []string {
	c, table, pba := uint32(le.Uint16(p[2:])), le.Uint32(p[4:]), le.Uint32(p[8:])
	return []string{
		fmt.Sprintf("%s Count=%d", signed(c, []flag{{0x8000, "Enable"}, {0x4000, "Masked"}}), c&0x7ff+1),
		fmt.Sprintf("Vector table: BAR=%d offset=%08x", table&7, table&^7),
		fmt.Sprintf("PBA: BAR=%d offset=%08x", pba&7, pba&^7),
	}
}

func express(p []byte) []string {
	c := le.Uint16(p[2:])
	kind := map[uint16]string{0: "Endpoint", 1: "Legacy Endpoint", 9: "Root Complex Integrated Endpoint"}[c>>4&0xf]
	if kind == "" {
		kind = fmt.Sprintf("type %d", c>>4&0xf)
	}
	reset := signed(le.Uint32(p[4:]), []flag{{0x10000000, "FLReset"}})
	return []string{fmt.Sprintf("version %d, %s, link width x%d, %s", c&0xf, kind, le.Uint16(p[18:])>>4&0x3f, reset)}
}

// Bits of the command register that enable BARs.
const commandIO, commandMemory = 1, 2

func (c *Config) barText(r *BAR) string {
	kind, address, rights, enable := "Memory", fmt.Sprintf("%08x", r.Address), "", uint16(commandMemory)
	if r.IO {
		kind, address, enable = "I/O ports", fmt.Sprintf("%04x", r.Address), commandIO
	} else {
		width, prefetch := "32-bit", "non-prefetchable"
		if r.Is64 {
			width = "64-bit"
		}
		if r.Prefetchable {
			prefetch = "prefetchable"
		}
		rights = fmt.Sprintf(" (%s, %s)", width, prefetch)
	}
	state := ""
	if c.Command&enable == 0 {
		state = " [disabled]"
		if r.Address == 0 {
			address = "<unassigned>"
		}
	}
	if r.Size > 0 {
		state += fmt.Sprintf(" [size=%s]", size(r.Size))
	}
	return fmt.Sprintf("    Region %d: %s at %s%s%s\n", r.Index, kind, address, rights, state)
}

// Text writes c in the style of lspci -v, with numbers for vendors and devices.
func (c *Config) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s [%04x]: %04x:%04x (rev %02x)", c.ClassName, c.Class>>8, c.Vendor, c.Device, c.Revision)
	if i := c.Class & 0xff; i != 0 {
		fmt.Fprintf(&b, " (prog-if %02x)", i)
	}
	fmt.Fprintf(&b, "\n    Subsystem: %04x:%04x\n", c.SubVendor, c.Subsystem)
	fmt.Fprintf(&b, "    Control: %s\n", signed(uint32(c.Command), commandBits))
	devsel := [...]string{"fast", "medium", "slow", "??"}[c.Status>>9&3]
	fmt.Fprintf(&b, "    Status: %s DEVSEL=%s\n", signed(uint32(c.Status), statusBits), devsel)
	if c.Pin > 0 && c.Pin <= 4 {
		fmt.Fprintf(&b, "    Interrupt: pin %c routed to IRQ %d\n", 'A'+c.Pin-1, c.Line)
	}
	for _, r := range c.BARs {
		b.WriteString(c.barText(&r))
	}
	if c.ROM != 0 {
		state := "disabled"
		if c.ROM&1 != 0 {
			state = "enabled"
		}
		fmt.Fprintf(&b, "    Expansion ROM at %08x [%s]\n", c.ROM&^0x7ff, state)
	}
	for _, k := range c.Capabilities {
		fmt.Fprintf(&b, "    Capabilities: [%02x", k.Offset)
		if k.Extended {
			fmt.Fprintf(&b, " v%d", k.Version)
		}
		fmt.Fprintf(&b, "] %s", k.Name)
		for i, l := range k.Lines {
			if i == 0 {
				fmt.Fprintf(&b, ": %s", l)
				continue
			}
			fmt.Fprintf(&b, "\n        %s", l)
		}
		b.WriteByte('\n')
	}
	for _, f := range c.Faults {
		fmt.Fprintf(&b, "    wrong: %s\n", f)
	}
	return b.String()
}

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
	HeaderType   uint8        `json:"header_type"`
	Command      uint16       `json:"command"`
	Status       uint16       `json:"status"`
	Latency      uint8        `json:"latency"`
	CacheLine    uint8        `json:"cache_line"` // bytes
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

type flagBit struct {
	mask uint32
	name string
}

func flagText(v uint32, bits []flagBit) string {
	var out []string
	for _, b := range bits {
		sign := "-"
		if v&b.mask != 0 {
			sign = "+"
		}
		out = append(out, b.name+sign)
	}
	return strings.Join(out, " ")
}

var commandBits = []flagBit{
	{1, "I/O"}, {2, "Mem"}, {4, "BusMaster"}, {8, "SpecCycle"}, {0x10, "MemWINV"}, {0x20, "VGASnoop"},
	{0x40, "ParErr"}, {0x80, "Stepping"}, {0x100, "SERR"}, {0x200, "FastB2B"}, {0x400, "DisINTx"},
}

var statusBits = []flagBit{
	{0x10, "Cap"}, {0x20, "66MHz"}, {0x40, "UDF"}, {0x80, "FastB2B"}, {0x100, "ParErr"},
	{0x800, ">TAbort"}, {0x1000, "<TAbort"}, {0x2000, "<MAbort"}, {0x4000, ">SERR"}, {0x8000, "<PERR"}, {0x8, "INTx"},
}

var classNames = map[uint16]string{
	0x0000: "Unclassified device", 0x0100: "SCSI storage controller", 0x0106: "SATA controller", 0x0108: "Non-Volatile memory controller",
	0x0180: "Mass storage controller", 0x0200: "Ethernet controller", 0x0280: "Network controller", 0x0300: "VGA compatible controller",
	0x0302: "3D controller", 0x0380: "Display controller", 0x0403: "Audio device", 0x0500: "RAM memory", 0x0580: "Memory controller",
	0x0600: "Host bridge", 0x0601: "ISA bridge", 0x0604: "PCI bridge", 0x0700: "Serial controller", 0x0880: "System peripheral",
	0x0c03: "USB controller", 0x0c05: "SMBus", 0x1180: "Signal processing controller", 0x1200: "Processing accelerators",
}

// Offsets in the header.
const (
	offCommand, offStatus = 0x04, 0x06
	offRevision           = 0x08
	offCacheLine          = 0x0c
	offLatency            = 0x0d
	offHeaderType         = 0x0e
	offBARs               = 0x10
	offSubsystem          = 0x2c
	offROM                = 0x30
	offCapabilities       = 0x34
	offLine, offPin       = 0x3c, 0x3d
	offExtended           = 0x100
	statusHasCapabilities = 0x10
	maxCapabilities       = 48
	maxExtended           = (4096 - 256) / 8
)

// Decode decodes p, a configuration space of at least 64 bytes. The regions, if any, give the
// sizes of BARs.
func Decode(p []byte, regions []Region) *Config {
	c := &Config{
		Vendor: le.Uint16(p), Device: le.Uint16(p[2:]), Command: le.Uint16(p[offCommand:]), Status: le.Uint16(p[offStatus:]),
		Revision: p[offRevision], Class: le.Uint32(p[offRevision:]) >> 8, CacheLine: p[offCacheLine] * 4, Latency: p[offLatency], HeaderType: p[offHeaderType],
		SubVendor: le.Uint16(p[offSubsystem:]), Subsystem: le.Uint16(p[offSubsystem+2:]), ROM: le.Uint32(p[offROM:]), Line: p[offLine], Pin: p[offPin],
		Capabilities: []Capability{}, BARs: []BAR{},
	}
	c.ClassName = classNames[uint16(c.Class>>8)]
	if c.ClassName == "" {
		c.ClassName = fmt.Sprintf("Class %04x", c.Class>>8)
	}
	c.bars(p, regions)
	if c.Status&statusHasCapabilities != 0 {
		c.list(p)
	}
	if len(p) > offExtended {
		c.extended(p)
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

func (c *Config) list(p []byte) {
	p = p[:min(len(p), 256)]
	seen := map[int]bool{}
	for at := int(p[offCapabilities]) &^ 3; at != 0; {
		switch {
		case at < 0x40 || at+2 > len(p):
			c.fault("capability at %#x: outside of %#x-%#x", at, 0x40, len(p)-1)
			return
		case seen[at] || len(seen) > maxCapabilities:
			c.fault("capability at %#x: the list is a cycle", at)
			return
		}
		seen[at] = true
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
		at = int(p[at+1]) &^ 3
	}
}

func (c *Config) extended(p []byte) {
	seen := map[int]bool{}
	for at := offExtended; at != 0; {
		if at < offExtended || at+4 > len(p) {
			c.fault("extended capability at %#x: outside", at)
			return
		}
		v := le.Uint32(p[at:])
		if v == 0 || v == 0xffffffff {
			return
		}
		if seen[at] || len(seen) > maxExtended {
			c.fault("extended capability at %#x: the list is a cycle", at)
			return
		}
		seen[at] = true
		id := uint16(v)
		name := extendedNames[id]
		if name == "" {
			name = fmt.Sprintf("unknown %#04x", id)
		}
		k := Capability{Offset: at, ID: id, Extended: true, Version: uint8(v>>16) & 0xf, Name: name}
		if id == 3 && at+12 <= len(p) {
			s := p[at+4 : at+12]
			k.Lines = []string{fmt.Sprintf("%02x-%02x-%02x-%02x-%02x-%02x-%02x-%02x", s[7], s[6], s[5], s[4], s[3], s[2], s[1], s[0])}
		}
		if id == 0xb && at+8 <= len(p) {
			h := le.Uint32(p[at+4:])
			k.Lines = []string{fmt.Sprintf("ID=%04x Rev=%d Len=%03x", h&0xffff, h>>16&0xf, h>>20)}
		}
		c.Capabilities = append(c.Capabilities, k)
		at = int(v >> 20)
	}
}

var extendedNames = map[uint16]string{
	1: "Advanced Error Reporting", 2: "Virtual Channel", 3: "Device Serial Number", 4: "Power Budgeting", 0xb: "Vendor Specific Information",
	0xd: "Access Control Services", 0xe: "Alternative Routing-ID Interpretation", 0xf: "Address Translation Service", 0x10: "Single Root I/O Virtualization",
	0x13: "Page Request Interface", 0x15: "Physical Resizable BAR", 0x17: "Transaction Processing Hints", 0x18: "Latency Tolerance Reporting",
	0x19: "Secondary PCI Express", 0x1b: "Process Address Space ID", 0x1e: "L1 PM Substates", 0x23: "Designated Vendor-Specific",
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
	0xd:  {"Bridge subsystem", 0, nil},
	0x10: {"Express", 20, express},
	0x11: {"MSI-X", 12, msix},
	0x12: {"SATA HBA", 0, nil},
	0x13: {"PCI Advanced Features", 0, nil},
}

func powerManagement(p []byte) []string {
	c, v := le.Uint16(p[2:]), le.Uint16(p[4:])
	return []string{fmt.Sprintf("version %d, state D%d", c&7, v&3)}
}

func msi(p []byte) []string {
	c := uint32(le.Uint16(p[2:]))
	out := []string{fmt.Sprintf("%s Count=%d/%d", flagText(c, []flagBit{{1, "Enable"}, {0x100, "Maskable"}, {0x80, "64bit"}}), 1<<(c>>4&7), 1<<(c>>1&7))}
	if c&0x80 != 0 && len(p) >= 14 {
		return append(out, fmt.Sprintf("Address: %016x  Data: %04x", le.Uint64(p[4:]), le.Uint16(p[12:])))
	}
	return append(out, fmt.Sprintf("Address: %08x  Data: %04x", le.Uint32(p[4:]), le.Uint16(p[8:])))
}

func msix(p []byte) []string {
	c, table, pba := uint32(le.Uint16(p[2:])), le.Uint32(p[4:]), le.Uint32(p[8:])
	return []string{
		fmt.Sprintf("%s Count=%d", flagText(c, []flagBit{{0x8000, "Enable"}, {0x4000, "Masked"}}), c&0x7ff+1),
		fmt.Sprintf("Vector table: BAR=%d offset=%08x", table&7, table&^7),
		fmt.Sprintf("PBA: BAR=%d offset=%08x", pba&7, pba&^7),
	}
}

var expressTypes = [...]string{
	0: "Endpoint", 1: "Legacy Endpoint", 4: "Root Port", 5: "Upstream Port", 6: "Downstream Port",
	7: "PCI-Express to PCI Bridge", 8: "PCI to PCI-Express Bridge", 9: "Root Complex Integrated Endpoint", 10: "Root Complex Event Collector",
}

func express(p []byte) []string {
	c, kind := le.Uint16(p[2:]), "unknown type"
	if t := int(c >> 4 & 0xf); t < len(expressTypes) && expressTypes[t] != "" {
		kind = expressTypes[t]
	}
	reset := flagText(le.Uint32(p[4:]), []flagBit{{0x10000000, "FLReset"}})
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
		state += fmt.Sprintf(" [size=%s]", Size(r.Size))
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
	fmt.Fprintf(&b, "    Control: %s\n", flagText(uint32(c.Command), commandBits))
	devsel := [...]string{"fast", "medium", "slow", "??"}[c.Status>>9&3]
	fmt.Fprintf(&b, "    Status: %s DEVSEL=%s\n", flagText(uint32(c.Status), statusBits), devsel)
	fmt.Fprintf(&b, "    Latency: %d, Cache Line Size: %d bytes\n", c.Latency, c.CacheLine)
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

package firmware

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEncodeRefusesWhatDoesNotFit(t *testing.T) {
	d := GF100(Options{})
	d.Class = 1 << 24
	_, err := Build(d)
	require.EqualError(t, err, "vbios: at 0x00004d: PCIR.Class: 0x1000000 does not fit, the largest value is 0xffffff")

	d = GF100(Options{})
	d.Info.Date = "01/01/2026"
	_, err = Build(d)
	require.ErrorContains(t, err, `BIT 'i'.Date: "01/01/2026" has 10 bytes, the field holds 8`)

	d = GF100(Options{})
	d.Memory.Types[0].Strap = 16
	_, err = Build(d)
	require.ErrorContains(t, err, "memory type.Strap: 0x10 does not fit, the largest value is 0xf")
}

func TestBuildErrors(t *testing.T) {
	tests := []struct {
		name string
		edit func(*Description)
		want string
	}{
		{"size 0", func(d *Description) { d.Size = 0 }, "Description.Size: 0 is not a multiple of 512 from 512 to 130560"},
		{"odd size", func(d *Description) { d.Size = 8000 }, "Description.Size: 8000 is not"},
		{"large size", func(d *Description) { d.Size = 131072 }, "Description.Size: 131072 is not"},
		{"too small", func(d *Description) { d.Size = 512; d.DCB = nil; d.Analog.Loads = make([]uint32, 100) }, "analog load table: no room for its 0x194 bytes in the image of 0x200"},
		{"overlap", func(d *Description) { d.BITOffset = 0x44 }, "BIT: 0x42 bytes overlap PCIR at 0x000040"},
		{"outside", func(d *Description) { d.DCB.Offset = 0x1ff0 }, "at 0x001ff0: DCB: 0x1b bytes do not fit in the image of 0x2000"},
		{"DCB version", func(d *Description) { d.DCB.Version = 0x22 }, "DCB: version 22 is not one of 30 to 41"},
		{"BIT missing", func(d *Description) { d.BITOffset = 0 }, "is 0 (no BIT), but there are 9 tokens"},
		{"known token", func(d *Description) { d.Other = []RawToken{{ID: 'P', Version: 2}} }, "BIT 'P': version 2 has a field of its own"},
		{"open script", func(d *Description) { d.Init.Scripts = []HexBytes{{0x72}} }, "init script: byte 0x1: the image ends before opcode 71 (DONE)"},
		{"unknown opcode", func(d *Description) { d.Init.Scripts = []HexBytes{{0x00}} }, "init script: byte 0x0: opcode 00 is unknown"},
		{"after the end", func(d *Description) { d.Init.Scripts = []HexBytes{{0x71, 0x71}} }, "init script: ends with DONE after 0x1 bytes, but has 0x2"},
		{"negative", func(d *Description) { d.PCIROffset = -1 }, "do not fit"},
		{"two BITs", func(d *Description) {
			d.BITOffset = 0x1fa0 // too near the end for 'i', which then goes to the front
			d.Info.Date = "\xff\xb8BIT"
		}, "other data before it holds its magic bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := GF100(Options{})
			test.edit(&d)
			_, err := Build(d)
			require.IsType(t, &Error{}, err)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Lengths of the instructions up to the repeated part, opcode byte included: a
// list of its own, against which the operand tables are held.
var opcodeLengths = map[uint8]int{
	0x32: 11, 0x33: 2, 0x34: 12, 0x36: 1, 0x37: 11, 0x38: 1, 0x39: 2, 0x3a: 3, 0x3b: 2, 0x3c: 2, 0x47: 9, 0x48: 9, 0x49: 18, 0x4a: 11,
	0x4b: 9, 0x4c: 4, 0x4d: 4, 0x4e: 4, 0x4f: 5, 0x50: 3, 0x51: 5, 0x52: 4, 0x53: 3, 0x54: 2, 0x56: 3, 0x57: 3, 0x58: 6, 0x59: 7, 0x5a: 7,
	0x5b: 3, 0x5c: 3, 0x5e: 6, 0x5f: 22, 0x62: 5, 0x63: 1, 0x65: 13, 0x66: 1, 0x67: 1, 0x68: 1, 0x69: 5, 0x6b: 2, 0x6d: 3, 0x6e: 13, 0x6f: 2,
	0x71: 1, 0x72: 1, 0x73: 9, 0x74: 3, 0x75: 2, 0x76: 2, 0x77: 7, 0x78: 6, 0x79: 7, 0x7a: 9, 0x87: 2, 0x8c: 1, 0x8d: 1, 0x8e: 1, 0x8f: 7,
	0x90: 9, 0x91: 6, 0x92: 1, 0x96: 17, 0x97: 13, 0x98: 6, 0x99: 6, 0x9a: 7, 0xa9: 2, 0xaa: 4,
}

func TestOpcodeLengths(t *testing.T) {
	require.Len(t, opcodes, len(opcodeLengths))
	for code, want := range opcodeLengths {
		op, ok := opcodes[code]
		require.True(t, ok, "%02x", code)
		require.Equal(t, want, 1+op.fixedSize(), "%02x %s", code, op.name)
	}
}

func TestScriptText(t *testing.T) {
	code := []byte{
		0x6e, 0x00, 0x02, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00, 0x00, // 0
		0x58, 0x00, 0x01, 0x10, 0x00, 0x02, 1, 0, 0, 0, 2, 0, 0, 0, // d
		0x8f, 0x10, 0x00, 0x10, 0x00, 0x04, 0x01, 1, 0, 0, 0, 2, 0, 0, 0, // 1b
		0x71, // 2a
	}
	ins, err := decodeScript(code, 0x1000, 2, maxInstructions)
	require.NoError(t, err)
	require.Equal(t, []Instruction{
		{0x1000, 13, "NV_REG", "reg=00000200 mask=ffffffff data=00000001"},
		{0x100d, 14, "ZM_REG_SEQUENCE", "reg=00100100 count=02 {data=00000001} {data=00000002}"},
		{0x101b, 15, "RAM_RESTRICT_ZM_REG_GROUP", "reg=00100010 step=04 count=01 {data=00000001} {data=00000002}"},
		{0x102a, 1, "DONE", ""},
	}, ins)

	_, err = decodeScript(code[:5], 0x1000, 2, maxInstructions)
	require.EqualError(t, err, "vbios: at 0x001000: init script: NV_REG needs 13 bytes, the image ends after 5")
	_, err = decodeScript(code[:0x1a], 0x1000, 2, maxInstructions)
	require.EqualError(t, err, "vbios: at 0x00100d: init script: ZM_REG_SEQUENCE needs 14 bytes, the image ends after 13")
}

// A script of any instructions but those that end one, then DONE.
func genScript(t *rapid.T, ramConfigs int) HexBytes {
	codes := slices.Sorted(maps.Keys(opcodes))
	codes = slices.DeleteFunc(codes, func(c uint8) bool { return opcodes[c].ends })
	var out HexBytes
	for range rapid.IntRange(0, 12).Draw(t, "instructions") {
		code := rapid.SampledFrom(codes).Draw(t, "opcode")
		op, groups := opcodes[code], 1
		out = append(out, code)
		for _, o := range op.operands {
			if o.name == "count" {
				groups = rapid.IntRange(0, 3).Draw(t, "count")
				out = append(out, byte(groups))
				continue
			}
			out = append(out, rapid.SliceOfN(rapid.Byte(), o.width, o.width).Draw(t, o.name)...)
		}
		if op.perConfig {
			groups *= ramConfigs
		}
		for range groups {
			for _, o := range op.group {
				out = append(out, rapid.SliceOfN(rapid.Byte(), o.width, o.width).Draw(t, o.name)...)
			}
		}
	}
	return append(out, 0x71)
}

// fill draws every unsigned field of a struct.
func fill[T any](t *rapid.T, name string) *T {
	v := new(T)
	val := reflect.ValueOf(v).Elem()
	for i := range val.NumField() {
		if fv := val.Field(i); fv.CanUint() && val.Type().Field(i).Tag.Get("json") != "-" {
			fv.SetUint(rapid.Uint64().Draw(t, fmt.Sprintf("%s.%d", name, i)) & (math.MaxUint64 >> (64 - fv.Type().Bits())))
		}
	}
	return v
}

func some[T any](t *rapid.T, name string, most int, one func() T) []T {
	var out []T
	for range rapid.IntRange(0, most).Draw(t, name) {
		out = append(out, one())
	}
	return out
}

func genDescription(t *rapid.T) Description {
	with := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) != 0 }
	d := Description{
		Signature: SignatureROM, EntryPoint: rapid.Byte().Draw(t, "entry"), Size: 512 * rapid.IntRange(64, 255).Draw(t, "size"),
		PCIROffset: rapid.IntRange(0x38, 0x60).Draw(t, "pcir"), Vendor: rapid.Uint16().Draw(t, "vendor"), Device: rapid.Uint16().Draw(t, "device"),
		Class: rapid.Uint32Range(0, 1<<24-1).Draw(t, "class"), Revision: rapid.Byte().Draw(t, "revision"),
		CodeRevision: rapid.Uint16().Draw(t, "code revision"), CodeType: rapid.SampledFrom([]uint8{0, 3}).Draw(t, "code type"),
		BITOffset: rapid.SampledFrom([]int{0x80, 0x101, 0x600, 0x6000}).Draw(t, "bit"),
	}
	configs := 0
	if with("M") {
		d.Memory = fill[Memory](t, "M")
		d.Memory.Groups %= 4
		configs = int(d.Memory.Groups)
		d.Memory.Types = some(t, "types", 8, func() MemoryConfig {
			c := fill[MemoryConfig](t, "type")
			return MemoryConfig{c.Type & 15, c.Strap & 15, c.Group & 15}
		})
		if d.Memory.Types == nil {
			d.Memory.Match, d.Memory.TypesPointer = 0, 0
		}
	}
	if with("i") {
		d.Info = fill[Info](t, "i")
		d.Info.Date = rapid.StringMatching(`[0-9/]{0,8}`).Draw(t, "date")
	}
	if with("I") {
		d.Init = fill[InitTables](t, "I")
		d.Init.Scripts = some(t, "scripts", 4, func() HexBytes { return genScript(t, configs) })
		if with("extra") {
			d.Init.Extra = genScript(t, configs)
		}
	}
	if with("C") {
		d.Clocks = &Clocks{PLLs: some(t, "plls", 4, func() PLL {
			pll := fill[PLL](t, "pll")
			pll.Limits = *fill[PLLLimits](t, "limits")
			return *pll
		})}
	}
	if with("P") {
		d.Perf = fill[Perf](t, "P")
	}
	if with("A") {
		d.Analog = &Analog{Loads: some(t, "loads", 4, func() uint32 { return rapid.Uint32().Draw(t, "load") }), Unk02: rapid.Byte().Draw(t, "unk02")}
	}
	if with("D") {
		d.Panels = fill[Panels](t, "D")
	}
	if with("L") {
		d.LVDS = fill[LVDS](t, "L")
	}
	if with("T") {
		d.TMDS = fill[TMDS](t, "T")
	}
	d.Other = some(t, "other", 4, func() RawToken {
		raw := RawToken{ID: rapid.SampledFrom([]uint8("2BNSUVcdpuxzP")).Draw(t, "id"), Version: rapid.SampledFrom([]uint8{0, 1, 3}).Draw(t, "version")}
		if n := rapid.IntRange(0, 40).Draw(t, "n"); n > 0 {
			raw.Data = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
		}
		return raw
	})
	if with("DCB") {
		d.DCB = fill[DCB](t, "DCB")
		d.DCB.Offset = rapid.IntRange(0x300, 0x400).Draw(t, "dcb")
		d.DCB.Version = rapid.SampledFrom([]uint8{0x30, 0x40, 0x41}).Draw(t, "dcb version")
		d.DCB.Outputs = some(t, "outputs", 16, func() DCBOutput {
			o := fill[DCBOutput](t, "output")
			return DCBOutput{o.Type & 15, o.I2C & 15, o.Heads & 15, o.Connector & 15, o.Bus & 15, o.Location & 3, o.Unk22 & 3, o.OR & 15, o.Unk28 & 15, o.Specific}
		})
	}
	return d
}

// Build and Parse are inverse.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDescription(t)
		b, err := Build(d)
		require.NoError(t, err)
		require.Len(t, b, d.Size)
		sum := 0
		for _, x := range b {
			sum += int(x)
		}
		require.Zero(t, sum%256, "checksum")
		img, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, d, img.Description)
		again, err := Build(img.Description)
		require.NoError(t, err)
		require.Equal(t, b, again, "building is deterministic")
	})
}

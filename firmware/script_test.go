package firmware

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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

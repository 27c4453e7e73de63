package firmware

import (
	"fmt"
	"strings"
)

// Script is an init script: code for the small interpreter that brings up a
// board which the firmware of the machine has not.
type Script struct {
	Name         string        `json:"name"`
	Offset       int           `json:"offset"`
	Code         HexBytes      `json:"code"` // up to and with the opcode that ends it
	Instructions []Instruction `json:"instructions"`
}

// Instruction is one decoded instruction of a script.
type Instruction struct {
	Offset int    `json:"offset"`
	Size   int    `json:"size"`
	Name   string `json:"name"`
	Text   string `json:"text"`
}

// An operand is one little-endian value of an instruction.
type operand struct {
	name  string
	width int // bytes
}

// An opcode is one instruction: operands, then a group of operands that is
// repeated. The number of groups is the operand named count; with perConfig
// each group is repeated for every RAM configuration ('M' token, Groups).
type opcode struct {
	name      string
	operands  []operand
	group     []operand
	perConfig bool
	ends      bool // the script ends here
}

// Operands. Ports are VGA I/O ports with an index, registers BAR0 offsets.
var (
	opAddr   = operand{"addr", 1}
	opBus    = operand{"bus", 1}
	opCond   = operand{"cond", 1}
	opCount  = operand{"count", 1}
	opIndex  = operand{"index", 1}
	opPort   = operand{"port", 2}
	opReg    = operand{"reg", 4}
	opShift  = operand{"shift", 1}
	opData8  = operand{"data", 1}
	opData16 = operand{"data", 2}
	opData32 = operand{"data", 4}
	opMask8  = operand{"mask", 1}
	opMask32 = operand{"mask", 4}
	opFreq16 = operand{"freq", 2} // 10 kHz
	opFreq32 = operand{"freq", 4} // kHz
	opTime16 = operand{"time", 2}
	opROM    = operand{"rom", 2} // offset in the image
)

// opDone ends a script.
const opDone = 0x71

// opcodes of the init script interpreter, with the names of envytools and nouveau.
// CONFIGURE_* end the script on every board that has a BIT.
var opcodes = map[uint8]opcode{
	0x32: {name: "IO_RESTRICT_PROG", operands: []operand{opPort, opIndex, opMask8, opShift, opCount, opReg}, group: []operand{opData32}},
	0x33: {name: "REPEAT", operands: []operand{{"times", 1}}},
	0x34: {name: "IO_RESTRICT_PLL", operands: []operand{opPort, opIndex, opMask8, opShift, opCond, opCount, opReg}, group: []operand{opFreq16}},
	0x36: {name: "END_REPEAT"},
	0x37: {name: "COPY", operands: []operand{opReg, opShift, {"smask", 1}, opPort, opIndex, opMask8}},
	0x38: {name: "NOT"},
	0x39: {name: "IO_FLAG_CONDITION", operands: []operand{opCond}},
	0x3a: {name: "GENERIC_CONDITION", operands: []operand{opCond, opCount}, group: []operand{{"data", 1}}},
	0x3b: {name: "IO_MASK_OR", operands: []operand{opIndex}},
	0x3c: {name: "IO_OR", operands: []operand{opIndex}},
	0x47: {name: "ANDN_REG", operands: []operand{opReg, opMask32}},
	0x48: {name: "OR_REG", operands: []operand{opReg, opMask32}},
	0x49: {name: "INDEX_ADDRESS_LATCHED", operands: []operand{{"ctrl", 4}, opReg, opMask32, opData32, opCount}, group: []operand{opIndex, opData8}},
	0x4a: {name: "IO_RESTRICT_PLL2", operands: []operand{opPort, opIndex, opMask8, opShift, opCount, opReg}, group: []operand{opFreq32}},
	0x4b: {name: "PLL2", operands: []operand{opReg, opFreq32}},
	0x4c: {name: "I2C_BYTE", operands: []operand{opBus, opAddr, opCount}, group: []operand{opIndex, opMask8, opData8}},
	0x4d: {name: "ZM_I2C_BYTE", operands: []operand{opBus, opAddr, opCount}, group: []operand{opIndex, opData8}},
	0x4e: {name: "ZM_I2C", operands: []operand{opBus, opAddr, opCount}, group: []operand{opData8}},
	0x4f: {name: "TMDS", operands: []operand{{"tmds", 1}, opAddr, opMask8, opData8}},
	0x50: {name: "ZM_TMDS_GROUP", operands: []operand{{"tmds", 1}, opCount}, group: []operand{opAddr, opData8}},
	0x51: {name: "CR_INDEX_ADDRESS_LATCHED", operands: []operand{{"cr0", 1}, {"cr1", 1}, {"base", 1}, opCount}, group: []operand{opData8}},
	0x52: {name: "CR", operands: []operand{opIndex, opMask8, opData8}},
	0x53: {name: "ZM_CR", operands: []operand{opIndex, opData8}},
	0x54: {name: "ZM_CR_GROUP", operands: []operand{opCount}, group: []operand{opIndex, opData8}},
	0x56: {name: "CONDITION_TIME", operands: []operand{opCond, {"retry", 1}}},
	0x57: {name: "LTIME", operands: []operand{opTime16}}, // ms
	0x58: {name: "ZM_REG_SEQUENCE", operands: []operand{opReg, opCount}, group: []operand{opData32}},
	0x59: {name: "PLL_INDIRECT", operands: []operand{opReg, opROM}},
	0x5a: {name: "ZM_REG_INDIRECT", operands: []operand{opReg, opROM}},
	0x5b: {name: "SUB_DIRECT", operands: []operand{opROM}},
	0x5c: {name: "JUMP", operands: []operand{opROM}},
	0x5e: {name: "I2C_IF", operands: []operand{opBus, opAddr, opIndex, opMask8, opData8}},
	0x5f: {name: "COPY_NV_REG", operands: []operand{opReg, opShift, {"smask", 4}, {"xor", 4}, {"dreg", 4}, opMask32}},
	0x62: {name: "ZM_INDEX_IO", operands: []operand{opPort, opIndex, opData8}},
	0x63: {name: "COMPUTE_MEM"},
	0x65: {name: "RESET", operands: []operand{opReg, {"first", 4}, {"then", 4}}},
	0x66: {name: "CONFIGURE_MEM", ends: true},
	0x67: {name: "CONFIGURE_CLK", ends: true},
	0x68: {name: "CONFIGURE_PREINIT", ends: true},
	0x69: {name: "IO", operands: []operand{opPort, opMask8, opData8}},
	0x6b: {name: "SUB", operands: []operand{{"script", 1}}},
	0x6d: {name: "RAM_CONDITION", operands: []operand{opMask8, opData8}},
	0x6e: {name: "NV_REG", operands: []operand{opReg, opMask32, opData32}},
	0x6f: {name: "MACRO", operands: []operand{{"macro", 1}}},
	0x71: {name: "DONE", ends: true},
	0x72: {name: "RESUME"},
	0x73: {name: "STRAP_CONDITION", operands: []operand{opMask32, opData32}},
	0x74: {name: "TIME", operands: []operand{opTime16}}, // us
	0x75: {name: "CONDITION", operands: []operand{opCond}},
	0x76: {name: "IO_CONDITION", operands: []operand{opCond}},
	0x77: {name: "ZM_REG16", operands: []operand{opReg, opData16}},
	0x78: {name: "INDEX_IO", operands: []operand{opPort, opIndex, opMask8, opData8}},
	0x79: {name: "PLL", operands: []operand{opReg, opFreq16}},
	0x7a: {name: "ZM_REG", operands: []operand{opReg, opData32}},
	0x87: {name: "RAM_RESTRICT_PLL", operands: []operand{{"pll", 1}}, group: []operand{opFreq32}, perConfig: true},
	0x8c: {name: "RESERVED_8C"},
	0x8d: {name: "RESERVED_8D"},
	0x8e: {name: "GPIO"},
	0x8f: {name: "RAM_RESTRICT_ZM_REG_GROUP", operands: []operand{opReg, {"step", 1}, opCount}, group: []operand{opData32}, perConfig: true},
	0x90: {name: "COPY_ZM_REG", operands: []operand{opReg, {"dreg", 4}}},
	0x91: {name: "ZM_REG_GROUP", operands: []operand{opReg, opCount}, group: []operand{opData32}},
	0x92: {name: "RESERVED_92"},
	0x96: {name: "XLAT", operands: []operand{opReg, opShift, {"smask", 1}, opIndex, {"dreg", 4}, opMask32, {"dshift", 1}}},
	0x97: {name: "ZM_MASK_ADD", operands: []operand{opReg, opMask32, {"add", 4}}},
	0x98: {name: "AUXCH", operands: []operand{{"addr", 4}, opCount}, group: []operand{opMask8, opData8}},
	0x99: {name: "ZM_AUXCH", operands: []operand{{"addr", 4}, opCount}, group: []operand{opData8}},
	0x9a: {name: "I2C_LONG_IF", operands: []operand{opBus, opAddr, {"reglo", 1}, {"reghi", 1}, opMask8, opData8}},
	0xa9: {name: "GPIO_NE", operands: []operand{opCount}, group: []operand{{"func", 1}}},
	0xaa: {name: "RESERVED_AA", operands: []operand{{"unk1", 1}, {"unk2", 1}, {"unk3", 1}}},
}

// maxInstructions bounds all scripts of an image together.
const maxInstructions = 1 << 16

// maxShownGroups bounds the groups spelled out in an instruction's text.
const maxShownGroups = 8

// decodeScript decodes code up to and with the opcode that ends the script. at
// is code's offset in the file; ramConfigs the 'M' token's Groups; limit the
// most instructions to decode.
func decodeScript(code []byte, at, ramConfigs, limit int) ([]Instruction, error) {
	var out []Instruction
	for pc := 0; pc < len(code); {
		if len(out) == limit {
			return out, errorf(at+pc, "init script", "the scripts have more than %d instructions", maxInstructions)
		}
		op, ok := opcodes[code[pc]]
		if !ok {
			return out, errorf(at+pc, "init script", "opcode %02x is unknown, so its length is too", code[pc])
		}
		size, text, ok := op.decode(code[pc+1:], ramConfigs)
		if !ok {
			return out, errorf(at+pc, "init script", "%s needs %d bytes, the image ends after %d", op.name, 1+size, len(code)-pc)
		}
		out = append(out, Instruction{Offset: at + pc, Size: 1 + size, Name: op.name, Text: text})
		pc += 1 + size
		if op.ends {
			return out, nil
		}
	}
	return out, errorf(at+len(code), "init script", "the image ends before opcode 71 (DONE)")
}

// decode reads the operands in b. It returns their size in bytes, and false if
// b is too short.
func (op opcode) decode(b []byte, ramConfigs int) (size int, text string, ok bool) {
	var sb strings.Builder
	groups := 1
	for _, o := range op.operands {
		if size+o.width > len(b) {
			return op.fixedSize(), "", false
		}
		x := getLE(b[size:], o.width)
		if o.name == "count" {
			groups = int(x)
		}
		fmt.Fprintf(&sb, " %s=%0*x", o.name, o.width*2, x)
		size += o.width
	}
	if op.group == nil {
		return size, strings.TrimPrefix(sb.String(), " "), true
	}
	if op.perConfig {
		groups *= ramConfigs
	}
	each := 0
	for _, o := range op.group {
		each += o.width
	}
	if size+groups*each > len(b) {
		return size + groups*each, "", false
	}
	for i := range groups {
		if i == maxShownGroups {
			fmt.Fprintf(&sb, " (%d more)", groups-i)
			break
		}
		sb.WriteString(" {")
		at := size + i*each
		for j, o := range op.group {
			if j > 0 {
				sb.WriteByte(' ')
			}
			fmt.Fprintf(&sb, "%s=%0*x", o.name, o.width*2, getLE(b[at:], o.width))
			at += o.width
		}
		sb.WriteByte('}')
	}
	return size + groups*each, strings.TrimPrefix(sb.String(), " "), true
}

func (op opcode) fixedSize() int {
	n := 0
	for _, o := range op.operands {
		n += o.width
	}
	return n
}

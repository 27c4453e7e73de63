package isa

import (
	"encoding/binary"
	"fmt"
	"iter"
	"strings"
)

// String disassembles an instruction.
func (in *Inst) String() string {
	var t text
	if in.Join {
		t.add("join")
	}
	switch {
	case in.Guard.Never():
		t.add("never")
	case in.Guard.Not:
		t.add(fmt.Sprintf("(not $p%d)", in.Guard.Pred))
	case !in.Guard.Always():
		t.add(fmt.Sprintf("$p%d", in.Guard.Pred))
	}
	t.slots(in, in.Form.slots)
	return t.String()
}

// Listing disassembles code, one line an instruction: offset, words, text.
func Listing(code []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for pc := 0; pc+4 <= len(code); {
			var word [8]byte
			copy(word[:], code[pc:])
			w := binary.LittleEndian.Uint64(word[:])
			in, err := Decode(w, uint32(pc))
			size, text := 8, in.String
			if err != nil {
				text = err.Error
			}
			words := fmt.Sprintf("%08x %08x", uint32(w), w>>32)
			switch {
			case w&shortBit != 0:
				size, words = 4, fmt.Sprintf("%08x         ", uint32(w))
			case pc+8 > len(code):
				words, text = fmt.Sprintf("%08x         ", uint32(w)), func() string { return "the code ends inside this instruction" }
			}
			if !yield(fmt.Sprintf("%08x: %s     %s", pc, words, text())) {
				return
			}
			pc += size
		}
	}
}

// A text joins words with spaces, except behind "(" and before ")".
type text struct {
	strings.Builder
	tight bool
}

func (t *text) add(word string) {
	if word == "" {
		return
	}
	if t.Len() > 0 && !t.tight && word != ")" {
		t.WriteByte(' ')
	}
	t.WriteString(word)
	t.tight = word == "("
}

func (t *text) slots(in *Inst, slots []slot) {
	for i := range slots {
		s := &slots[i]
		switch s.kind {
		case literal:
			t.add(s.text)
		case modifies:
			t.add(s.mod.texts[s.mod.number(in.Mod[s.mod.mod])])
		case operates:
			t.operand(in, s)
		case signs:
			if *in.sign(s) {
				t.add(s.text)
			}
		case minOrMax:
			p := in.Src[3]
			switch {
			case p.Reg != True:
				t.add("minmax")
				if p.Not {
					t.add("not")
				}
				t.operand(in, s)
			case p.Not:
				t.add("max")
			default:
				t.add("min")
			}
		case group:
			if p := in.Src[3]; p.Reg != True || p.Not || in.Mod[Combine] != CombineAnd {
				t.slots(in, s.inner)
			}
		}
	}
}

func (t *text) operand(in *Inst, s *slot) {
	var v Operand
	switch r := s.operand.role; r {
	case toPDst0, toPDst1:
		v = Operand{Kind: Pred, Reg: in.PDst[r-toPDst0]}
	case toTarget:
		v = Operand{Kind: Imm, Value: int64(in.Target)}
	default:
		v = *in.place(r)
	}
	switch s.operand.shape {
	case aVector:
		t.add(registers(v, 1<<v.Count-1))
	case aResult:
		t.add(registers(v, v.Mask))
	default:
		t.add(v.String())
	}
}

// sign returns the flag of the operand that a sign's slot is for.
func (in *Inst) sign(s *slot) *bool {
	v := in.place(s.operand.role)
	switch s.text {
	case "neg":
		return &v.Neg
	case "abs":
		return &v.Abs
	}
	return &v.Not
}

// registers prints a vector. Components without a register are "#".
func registers(v Operand, mask uint8) string {
	if v.Count == 0 {
		return "()"
	}
	parts := make([]string, v.Count)
	next := v.Reg
	for i := range parts {
		parts[i] = "#"
		if mask>>i&1 != 0 {
			parts[i] = fmt.Sprintf("$r%d", next)
			next++
		}
	}
	return strings.Join(parts, ":")
}

var sizes = [...]string{"", "", "d", "", "q"}

// String prints an operand without its signs. Register 63 as an input of 32 bits is 0x0, and
// predicate 7 is 0x1.
func (v Operand) String() string {
	switch v.Kind {
	case Reg:
		if v.Reg == Zero && v.Count == 1 {
			return "0x0"
		}
		return fmt.Sprintf("$r%d%s", v.Reg, sizes[v.Count])
	case Const:
		return fmt.Sprintf("c%d[%#x]", v.Bank, v.Value)
	case Imm:
		return hex(v.Value)
	case Pred:
		if v.Reg == True {
			return "0x1"
		}
		return fmt.Sprintf("$p%d", v.Reg)
	case Special:
		return "$" + SpecialName(v.Reg)
	case Memory:
		return v.memory()
	case Reduction:
		return fmt.Sprintf("$g%d", v.Value)
	case Surface:
		if v.Count == 1 {
			return fmt.Sprintf("img[%s]", Operand{Kind: Reg, Reg: v.Reg, Count: 1})
		}
		return fmt.Sprintf("img[%#x]", v.Value)
	case Texture:
		return fmt.Sprintf("$t%d", v.Value)
	case Sampler:
		return fmt.Sprintf("$s%d", v.Value)
	case Flags:
		return "$flags"
	}
	return "?"
}

func hex(v int64) string {
	if v < 0 {
		return fmt.Sprintf("-%#x", -uint64(v))
	}
	return fmt.Sprintf("%#x", v)
}

func (v Operand) memory() string {
	space := spaceNames[v.Space]
	if v.Space == ConstBank {
		space += fmt.Sprint(v.Bank)
	}
	base := ""
	if v.Reg != Zero || v.Count != 1 {
		base = fmt.Sprintf("$r%d%s", v.Reg, sizes[v.Count])
	}
	offset := hex(v.Value)
	switch {
	case base != "" && v.Value == 0:
		offset = ""
	case base != "" && v.Value > 0:
		offset = "+" + offset
	}
	return space + "[" + base + offset + "]"
}

// Special registers by number. The Y and Z of those that end in X follow it.
const (
	SRLaneID    = 0x00
	SRPhysID    = 0x03
	SRTID       = 0x20 // packed
	SRTIDX      = 0x21
	SRCTAIDX    = 0x25
	SRNTID      = 0x28 // packed
	SRNTIDX     = 0x29
	SRGridID    = 0x2c
	SRNCTAIDX   = 0x2d
	SRSharedWin = 0x30
	SRSharedLen = 0x31
	SRShared    = 0x32
	SRLocalWin  = 0x34
	SRLocalLen  = 0x35
	SRLocalPos  = 0x36
	SRLocalNeg  = 0x37
	SRLaneEQ    = 0x38 // then less, less or equal, greater, greater or equal
	SRClock     = 0x50 // then its high word
)

// specials are the special registers that have a name.
var specials = map[uint8]string{
	0x00: "laneid", 0x02: "nphysid", 0x03: "physid", 0x04: "pm0", 0x05: "pm1", 0x06: "pm2", 0x07: "pm3",
	0x08: "pm4", 0x09: "pm5", 0x0a: "pm6", 0x0b: "pm7", 0x10: "vtxcnt", 0x11: "invoc", 0x12: "ydir", 0x13: "thread_kill",
	0x20: "tid", 0x21: "tidx", 0x22: "tidy", 0x23: "tidz", 0x24: "launcharg", 0x25: "ctaidx", 0x26: "ctaidy", 0x27: "ctaidz",
	0x28: "ntid", 0x29: "ntidx", 0x2a: "ntidy", 0x2b: "ntidz", 0x2c: "gridid", 0x2d: "nctaidx", 0x2e: "nctaidy", 0x2f: "nctaidz",
	0x30: "swinbase", 0x31: "swinsz", 0x32: "smemsz", 0x33: "smembanks", 0x34: "lwinbase", 0x35: "lwinsz",
	0x36: "lpossz", 0x37: "lnegstart", 0x38: "lanemask_eq", 0x39: "lanemask_lt", 0x3a: "lanemask_le", 0x3b: "lanemask_gt",
	0x3c: "lanemask_ge", 0x40: "trapstat", 0x42: "warperr", 0x50: "clock", 0x51: "clockhi",
}

// SpecialName names a special register; one without a name is "sr" and its number.
func SpecialName(n uint8) string {
	if name, ok := specials[n]; ok {
		return name
	}
	return fmt.Sprintf("sr%d", n)
}

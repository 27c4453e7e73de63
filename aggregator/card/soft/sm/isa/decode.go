package isa

import (
	"fmt"
	"slices"
	"strings"
)

// An UndefinedError says why a word is no instruction.
type UndefinedError struct {
	Word   uint64
	Form   *Form // nil if the opcode is undefined
	Reason string
}

func (e *UndefinedError) Error() string {
	if e.Form == nil {
		return fmt.Sprintf("word 0x%016x is no instruction: %s", e.Word, e.Reason)
	}
	return fmt.Sprintf("word 0x%016x is no instruction: %s in %q", e.Word, e.Reason, e.Form.Name())
}

// Name returns the literal words of a form, such as "fma f32" or "and|or|xor|mov2 b32". A modifier
// that may have no text, such as a condition, is not one of them.
func (f *Form) Name() string {
	var words []string
	for _, s := range f.slots {
		switch s.kind {
		case literal:
			words = append(words, s.text)
		case minOrMax:
			words = append(words, "minmax")
		case modifies:
			if len(words) == 0 && !slices.Contains(s.mod.texts, "") {
				words = append(words, strings.Join(s.mod.texts, "|"))
			}
		}
	}
	return strings.Join(words, " ")
}

type fieldError struct {
	what  string
	value uint64
}

func errField(what string, v uint64) error { return &fieldError{what, v} }

func (e *fieldError) Error() string {
	return fmt.Sprintf("value %d of the %s is undefined", e.value, e.what)
}

// Decode decodes the instruction at pc, an offset in the code region. Of a short form only the
// low half of the word counts.
func Decode(word uint64, pc uint32) (Inst, error) {
	if word&shortBit != 0 {
		word &= 1<<32 - 1
	}
	f := find(word)
	if f == nil {
		return Inst{}, &UndefinedError{Word: word, Reason: "no form has this opcode"}
	}
	in := Inst{Op: f.Op, Form: f, Word: word, Size: 8, Guard: Guard{Pred: True}, PDst: [2]uint8{True, True}}
	in.Mod[Cond], in.Dst.Reg = CondTrue, Zero
	in.Src[3] = Operand{Kind: Pred, Reg: True}
	used := f.Mask
	if !f.noGuard || f.ignoresGuard() {
		used |= guardBits
	}
	if f.short() {
		in.Size = 4
	}
	if !f.noGuard {
		in.Guard = Guard{uint8(word >> 10 & 7), word>>13&1 != 0}
	}
	if f.joins() {
		in.Join = word&joinBit != 0
		used |= joinBit
	}
	taken, err := in.read(f.slots, word, pc)
	if err != nil {
		return Inst{}, &UndefinedError{word, f, err.Error()}
	}
	if reserved := word &^ (used | taken); reserved != 0 && !f.opaque {
		return Inst{}, &UndefinedError{word, f, fmt.Sprintf("reserved bits %#x are set", reserved)}
	}
	return in, nil
}

// read fills in what slots describe, and reports the bits that they took.
func (in *Inst) read(slots []slot, w uint64, pc uint32) (taken uint64, err error) {
	for i := range slots {
		s := &slots[i]
		var used uint64
		switch s.kind {
		case modifies:
			if s.fixed {
				in.Mod[s.mod.mod] = s.value
				break
			}
			v := s.field.get(w)
			if s.mod.texts[v] == "!" {
				return 0, errField(s.mod.mod.String(), v)
			}
			in.Mod[s.mod.mod] = s.mod.value(v)
			used = s.field.mask()
		case operates, minOrMax:
			used, err = in.readOperand(s, w, pc)
		case group:
			used, err = in.read(s.inner, w, pc)
		}
		if err != nil {
			return 0, err
		}
		taken |= used
	}
	return taken, nil
}

func (in *Inst) readOperand(s *slot, w uint64, pc uint32) (uint64, error) {
	v, used, err := s.operand.get(in, w)
	if err != nil {
		return 0, err
	}
	v.Neg, v.Abs, v.Not = w&s.neg != 0, w&s.abs != 0, w&s.not != 0
	switch s.operand.role {
	case toPDst0, toPDst1:
		in.PDst[s.operand.role-toPDst0] = v.Reg
	case toTarget:
		in.Target = uint32(s.operand.number(s.operand.field.get(w)))
		if s.operand.shape == aTarget {
			in.Target += pc + uint32(in.Size)
		}
	default:
		*in.place(s.operand.role) = v
	}
	return used | s.neg | s.abs | s.not, nil
}

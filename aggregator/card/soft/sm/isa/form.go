package isa

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// A Row describes one form of an instruction: words with these bits do this operation.
//
// The words of a syntax line are, in the order of the text:
//   - a literal word, "(" or ")";
//   - NAME@BITS: a modifier;
//   - NAME=VALUE: a modifier that the form has without bits for it;
//   - neg@BIT, abs@BIT, not@BIT: of the operand that follows;
//   - an operand, with @BITS where rows differ;
//   - minmax: the predicate that selects min or max, printed as that word;
//   - [ ... ]: the combination with a predicate, not printed if it is "and true";
//   - noguard: the guard's bits are ignored;
//   - "*": the operands are not described. Such a form has a name only.
type Row struct {
	Value, Mask uint64
	Op          Op
	Syntax      string
}

// A Form is a row whose syntax line has been read.
type Form struct {
	Row
	slots   []slot
	noGuard bool
	opaque  bool
}

type slotKind uint8

const (
	literal slotKind = iota
	modifies
	operates
	signs // neg, abs or not of the operand that follows
	group
	minOrMax
)

// A slot is one part of a syntax line.
type slot struct {
	kind          slotKind
	text          string
	mod           modifier
	field         field // of the modifier
	fixed         bool  // the modifier has no field, but this value
	value         uint8
	operand       operand
	neg, abs, not uint64 // bits of the operand's signs
	inner         []slot
}

const (
	shortBit  = 1 << 3
	joinBit   = 1 << 4
	guardBits = 0xf << 10
	control   = 7 // class of control flow, which has no join flag
)

// ignoresGuard reports whether the guard's bits may have any value.
func (f *Form) ignoresGuard() bool { return f.noGuard && !f.short() }

func (f *Form) short() bool    { return f.Value&shortBit != 0 }
func (f *Form) joins() bool    { return !f.short() && f.Value&control != control }
func (f *Form) String() string { return f.Syntax }

// forms are all rows, the most specific first, and index lists them by class and opcode.
var forms, index = build()

func build() (all []*Form, byKey [1024][]*Form) {
	for _, rows := range [][]Row{floatRows, doubleRows, wideRows, integerRows, moveRows, memoryRows, textureRows, controlRows, videoRows, shortRows} {
		for _, row := range rows {
			f := &Form{Row: row}
			f.parse()
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b *Form) int { return bits.OnesCount64(b.Mask) - bits.OnesCount64(a.Mask) })
	for key := range byKey {
		for _, f := range all {
			if value, mask := keyOf(f.Value), keyOf(f.Mask); key&mask == value {
				byKey[key] = append(byKey[key], f)
			}
		}
	}
	return all, byKey
}

// keyOf is what the index sorts by: the class with the short form's bit, and the opcode.
func keyOf(w uint64) int { return int(w&15 | w>>58<<4) }

// Forms returns all rows, the most specific first.
func Forms() []*Form { return forms }

// find returns the most specific row that matches a word.
func find(w uint64) *Form {
	for _, f := range index[keyOf(w)] {
		if w&f.Mask == f.Value {
			return f
		}
	}
	return nil
}

func (f *Form) parse() {
	words := strings.Fields(f.Syntax)
	if words[len(words)-1] == "*" {
		f.opaque, words = true, words[:len(words)-1]
	}
	f.slots, words = parseSlots(words, &f.noGuard)
	if len(words) != 0 {
		panic("isa: unbalanced row " + f.Syntax)
	}
}

func parseSlots(words []string, noGuard *bool) (slots []slot, rest []string) {
	var next slot // with the signs of the next operand
	first := 0    // of the slots that are its signs
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, at, placed := strings.Cut(word, "@")
		if name, value, fixed := strings.Cut(word, "="); fixed {
			slots = append(slots, slot{kind: modifies, mod: modifiers[name], fixed: true, value: number(value)})
			continue
		}
		m, isMod := modifiers[name]
		o, isOperand := operands[name]
		switch {
		case word == "]":
			return slots, words
		case word == "[":
			var inner []slot
			inner, words = parseSlots(words, nil)
			slots = append(slots, slot{kind: group, inner: inner})
			first = len(slots)
		case word == "noguard":
			*noGuard = true
		case word == "minmax":
			o = pred(toSrc3)
			o.field = parseField("49:3", 0)
			slots = append(slots, slot{kind: minOrMax, operand: o, not: 1 << 52})
			first = len(slots)
		case placed && (name == "neg" || name == "abs" || name == "not"):
			*map[string]*uint64{"neg": &next.neg, "abs": &next.abs, "not": &next.not}[name] = 1 << number(at)
			slots = append(slots, slot{kind: signs, text: name})
		case placed && isMod:
			width := uint8(bits.Len(uint(len(m.texts) - 1)))
			s := slot{kind: modifies, mod: m, field: parseField(at, width)}
			if 1<<s.field.width() != len(m.texts) {
				panic(fmt.Sprintf("isa: %q has %d values", word, len(m.texts)))
			}
			slots = append(slots, s)
		case isOperand:
			if placed {
				o.field = parseField(at, o.field.width())
			}
			next.kind, next.operand = operates, o
			for ; first < len(slots); first++ {
				slots[first].operand.role = o.role // matters to signs only
			}
			slots = append(slots, next)
			next, first = slot{}, len(slots)
		case !placed && strings.ToLower(word) == word:
			slots = append(slots, slot{kind: literal, text: word})
		default:
			panic(fmt.Sprintf("isa: unknown word %q in a row", word))
		}
	}
	return slots, nil
}

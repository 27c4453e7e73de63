package isa

import (
	"fmt"
	"strconv"
	"strings"
)

// Assemble turns a program of long forms into words: the text that Inst.String prints, one
// instruction a line. "NAME:" on a line of its own is a label, "//" starts a comment, and a
// branch target may be a label. Where a text has several encodings, the first row that fits is
// taken, and "0x0" is register 63 where that is allowed.
func Assemble(program string) ([]uint64, error) {
	var lines [][]string
	labels := make(map[string]uint32)
	for line := range strings.Lines(program) {
		line, _, _ = strings.Cut(line, "//")
		words := tokens(line)
		if len(words) == 1 && strings.HasSuffix(words[0], ":") {
			labels[strings.TrimSuffix(words[0], ":")] = uint32(8 * len(lines))
		} else if len(words) > 0 {
			lines = append(lines, words)
		}
	}
	code := make([]uint64, len(lines))
	for i, words := range lines {
		for j, w := range words {
			if at, ok := labels[w]; ok {
				words[j] = hex(int64(at))
			}
		}
		w, err := assembleLine(words, uint32(8*i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
		code[i] = w
	}
	return code, nil
}

// tokens splits a line at spaces and parentheses; "()" is one word.
func tokens(line string) []string {
	line = strings.NewReplacer("()", "()", "(", " ( ", ")", " ) ").Replace(line)
	return strings.Fields(line)
}

func assembleLine(words []string, pc uint32) (w uint64, err error) {
	err = fmt.Errorf("no form has this text")
	prefixed := Inst{Guard: Guard{Pred: True}, PDst: [2]uint8{True, True}}
	words = prefixed.prefix(words)
	for _, f := range forms {
		if first := &f.slots[0]; f.short() || first.kind == literal && first.text != words[0] {
			continue
		}
		in := prefixed
		in.Op, in.Form = f.Op, f
		if rest, ok := in.match(f.slots, words); ok && len(rest) == 0 {
			if w, err = Encode(&in, pc); err == nil {
				return w, nil
			}
		}
	}
	return 0, err
}

// prefix takes the join flag and the guard.
func (in *Inst) prefix(words []string) []string {
	if len(words) > 1 && words[0] == "join" {
		in.Join, words = true, words[1:]
	}
	switch {
	case len(words) > 1 && words[0] == "never" && words[1] != "$c": // else it is a condition
		in.Guard.Not, words = true, words[1:]
	case len(words) > 4 && words[0] == "(" && words[1] == "not":
		if p, ok := parseOperand(words[2], aPredicate); ok {
			in.Guard, words = Guard{p.Reg, true}, words[4:]
		}
	case len(words) > 1 && strings.HasPrefix(words[0], "$p"):
		if p, ok := parseOperand(words[0], aPredicate); ok {
			in.Guard, words = Guard{p.Reg, false}, words[1:]
		}
	}
	return words
}

// match fills in an instruction from words, and returns those that are left.
func (in *Inst) match(slots []slot, words []string) ([]string, bool) {
	for i := range slots {
		s := &slots[i]
		ok := true
		switch s.kind {
		case literal:
			words, ok = skip(words, s.text)
		case modifies:
			words, ok = in.matchMod(s, words)
		case operates:
			words, ok = in.matchOperand(s, words)
		case signs:
			words, *in.sign(s) = skip(words, s.text)
		case minOrMax:
			in.Src[3] = Operand{Kind: Pred, Reg: True}
			if words, ok = skip(words, "min"); ok {
				break
			}
			if words, ok = skip(words, "max"); ok {
				in.Src[3].Not = true
			} else if words, ok = skip(words, "minmax"); ok {
				words, in.Src[3].Not = skip(words, "not")
				words, ok = in.matchOperand(s, words)
			}
		case group:
			trial := *in
			if rest, fits := trial.match(s.inner, words); fits {
				*in, words = trial, rest
			} else {
				in.Src[3] = Operand{Kind: Pred, Reg: True}
			}
		}
		if !ok {
			return words, false
		}
	}
	return words, true
}

// skip takes the words of a text if they come next.
func skip(words []string, text string) ([]string, bool) {
	rest := words
	for want := range strings.FieldsSeq(text) {
		if len(rest) == 0 || rest[0] != want {
			return words, false
		}
		rest = rest[1:]
	}
	return rest, true
}

// matchMod takes a modifier's text. An empty one fits if no other does.
func (in *Inst) matchMod(s *slot, words []string) ([]string, bool) {
	empty := -1
	for v, text := range s.mod.texts {
		if text == "" {
			empty = v
		} else if rest, ok := skip(words, text); ok {
			in.Mod[s.mod.mod] = s.mod.value(uint64(v))
			return rest, true
		}
	}
	in.Mod[s.mod.mod] = s.mod.value(uint64(max(empty, 0)))
	return words, empty >= 0
}

func (in *Inst) matchOperand(s *slot, words []string) ([]string, bool) {
	if len(words) == 0 {
		return words, false
	}
	o := &s.operand
	v, ok := parseOperand(words[0], o.shape)
	switch {
	case !ok:
	case o.shape == aMemory && v.Kind == Const:
		v.Kind, v.Space, v.Reg, v.Count = Memory, ConstBank, Zero, 1
	case o.shape == aRegister:
		ok = v.Count == o.registers(in)
	case (o.shape == aSecond || o.shape == aSecond3) && o.count == 2 && words[0] == "0x0":
		v = Operand{Kind: Imm}
	case o.shape == aSecond, o.shape == aSecond3, o.shape == aThird:
		ok = v.Kind != Reg || v.Count == o.count
	}
	if !ok {
		return words, false
	}
	switch o.role {
	case toPDst0, toPDst1:
		in.PDst[o.role-toPDst0] = v.Reg
	case toTarget:
		in.Target = uint32(v.Value)
	default:
		p := in.place(o.role)
		v.Neg, v.Abs, v.Not = p.Neg, p.Abs, p.Not
		*p = v
	}
	return words[1:], true
}

// parseOperand reads one operand as String prints it, for a place of a shape.
func parseOperand(s string, as shape) (v Operand, ok bool) {
	switch {
	case as == aPredicate && s == "0x1":
		return Operand{Kind: Pred, Reg: True}, true
	case (as == aRegister || as == aSecond || as == aSecond3 || as == aThird) && s == "0x0":
		return Operand{Kind: Reg, Reg: Zero, Count: 1}, true
	case as == aVector || as == aResult:
		return parseVector(s)
	case s == "$flags":
		return Operand{Kind: Flags}, as == theFlags
	case strings.HasSuffix(s, "]"):
		return parseMemory(s)
	case as == aSpecial:
		for n, name := range specials {
			if s == "$"+name {
				return Operand{Kind: Special, Reg: n}, true
			}
		}
		return parseNumbered(s, "$sr", Special)
	case strings.HasPrefix(s, "$r"):
		v, ok = parseRegister(s)
	case strings.HasPrefix(s, "$p"):
		v, ok = parseNumbered(s, "$p", Pred)
	case strings.HasPrefix(s, "$g"):
		v, ok = parseNumbered(s, "$g", Reduction)
	case strings.HasPrefix(s, "$t"):
		v, ok = parseNumbered(s, "$t", Texture)
	case strings.HasPrefix(s, "$s"):
		v, ok = parseNumbered(s, "$s", Sampler)
	default:
		n, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			u, uerr := strconv.ParseUint(s, 0, 64)
			n, err = int64(u), uerr
		}
		v, ok = Operand{Kind: Imm, Value: n}, err == nil
	}
	return v, ok
}

func parseNumbered(s, prefix string, k Kind) (Operand, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, prefix), 10, 8)
	v := Operand{Kind: k, Reg: uint8(n)}
	if k == Texture || k == Sampler || k == Reduction {
		v = Operand{Kind: k, Value: int64(n)}
	}
	return v, err == nil && strings.HasPrefix(s, prefix) && (k != Pred || n <= True)
}

func parseRegister(s string) (Operand, bool) {
	count := uint8(1)
	for n, size := range sizes {
		if size != "" && strings.HasSuffix(s, size) {
			s, count = strings.TrimSuffix(s, size), uint8(n)
		}
	}
	v, ok := parseNumbered(s, "$r", Reg)
	v.Count = count
	return v, ok && v.Reg <= Zero
}

func parseVector(s string) (v Operand, ok bool) {
	v = Operand{Kind: Reg}
	if s == "()" {
		return v, true
	}
	for part := range strings.SplitSeq(s, ":") {
		if part != "#" {
			r, ok := parseNumbered(part, "$r", Reg)
			if !ok {
				return v, false
			}
			if v.Mask == 0 {
				v.Reg = r.Reg
			}
			v.Mask |= 1 << v.Count
		}
		v.Count++
	}
	return v, true
}

func parseMemory(s string) (v Operand, ok bool) {
	name, inner, _ := strings.Cut(strings.TrimSuffix(s, "]"), "[")
	if name == "img" {
		if v, ok = parseRegister(inner); ok {
			v.Kind = Surface
			return v, true
		}
		n, err := strconv.ParseInt(inner, 0, 64)
		return Operand{Kind: Surface, Value: n}, err == nil
	}
	v = Operand{Kind: Memory, Reg: Zero, Count: 1}
	letters := strings.TrimRight(name, "0123456789")
	space := -1
	for i, n := range spaceNames {
		if n == letters {
			space = i
		}
	}
	if space < 0 {
		return v, false
	}
	v.Space = Space(space)
	if digits := name[len(letters):]; digits != "" {
		n, err := strconv.ParseUint(digits, 10, 5)
		if err != nil {
			return v, false
		}
		v.Bank = uint8(n)
	}
	if strings.HasPrefix(inner, "$r") {
		at := strings.IndexAny(inner, "+-")
		if at < 0 {
			at = len(inner)
		}
		r, ok := parseRegister(inner[:at])
		if !ok {
			return v, false
		}
		v.Reg, v.Count = r.Reg, r.Count
		inner = strings.TrimPrefix(inner[at:], "+")
	} else if space == int(ConstBank) {
		v.Kind = Const
	}
	if inner == "" {
		return v, true
	}
	n, err := strconv.ParseInt(inner, 0, 64)
	v.Value = n
	return v, err == nil
}

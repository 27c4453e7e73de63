package interp

import (
	"encoding/binary"
	"maps"
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// A Program is the code region, decoded where it was executed. Whoever changes the code makes
// a new one.
type Program struct {
	Memory Memory
	Base   uint64 // of the code region

	insts map[uint32]*Code
	ran   map[*isa.Form]uint64 // of instructions that are no longer kept
}

// Code is a decoded instruction with what is wrong with it whenever it runs.
type Code struct {
	isa.Inst
	registers uint32 // that it needs
	runs      uint64 // warp instructions
	cause     Cause  // if bad
	bad       string
}

// maxDecoded is how many instructions are kept decoded, a few MiB. Code may be as large as
// the address space.
const maxDecoded = 8192

// at returns the instruction at pc; an error if there is no memory.
func (p *Program) at(pc uint32) (*Code, error) {
	if d := p.insts[pc]; d != nil {
		return d, nil
	}
	word, err := p.Word(pc)
	if err != nil {
		return nil, err
	}
	d := NewCode(word, pc)
	if len(p.insts) >= maxDecoded {
		p.forget()
	}
	if p.insts == nil {
		p.insts = make(map[uint32]*Code)
	}
	p.insts[pc] = d
	return d, nil
}

// Word returns the instruction word at pc; an error if there is no memory.
func (p *Program) Word(pc uint32) (uint64, error) {
	var word [8]byte
	if err := p.Memory.Load(p.Base+uint64(pc), word[:4]); err != nil {
		return 0, err
	}
	_ = p.Memory.Load(p.Base+uint64(pc)+4, word[4:]) // a short form may be the last
	return binary.LittleEndian.Uint64(word[:]), nil
}

// NewCode decodes a word.
func NewCode(word uint64, pc uint32) *Code {
	d := new(Code)
	var err error
	d.Inst, err = isa.Decode(word, pc)
	switch {
	case err != nil:
		d.cause, d.bad = IllegalInstruction, err.Error()
	case pc%uint32(d.Size) != 0:
		d.cause, d.bad = BadPC, "misaligned"
	default:
		d.check()
	}
	return d
}

// Good reports whether a launch can execute the instruction at all.
func (d *Code) Good(l *Launch) bool { return d.bad == "" && d.registers <= l.Registers }

// forget drops what was decoded, and keeps the counts.
func (p *Program) forget() {
	p.ran, p.insts = p.Ran(), nil
}

// Ran counts the warp instructions that ran, by form.
func (p *Program) Ran() map[*isa.Form]uint64 {
	ran := maps.Clone(p.ran)
	if ran == nil {
		ran = make(map[*isa.Form]uint64)
	}
	for _, d := range p.insts {
		if d.runs > 0 {
			ran[d.Form] += d.runs
		}
	}
	return ran
}

// check finds what is wrong with an instruction whenever it runs.
func (d *Code) check() {
	for _, v := range append(d.Src[:], d.Dst) {
		if v.Kind != isa.Reg && v.Kind != isa.Memory && v.Kind != isa.Surface || v.Reg == isa.Zero || v.Count == 0 {
			continue
		}
		size := v.Count
		if v.Mask != 0 {
			size = uint8(bits.OnesCount8(v.Mask))
		}
		d.registers = max(d.registers, uint32(v.Reg+size))
		if vector := v.Mask != 0 || v.Count == 3 || units(d.Op); !vector && v.Reg&(v.Count-1) != 0 {
			d.cause, d.bad = MisalignedRegister, v.String()
		}
	}
	switch {
	case laneOps[d.Op] == nil && warpOps[d.Op] == nil:
		d.cause, d.bad = NotImplemented, "operation "+d.Form.Name()
	case d.Mod[isa.SetCC] != 0 && !setsFlags[d.Op]:
		d.cause, d.bad = NotImplemented, "condition code of "+d.Form.Name()
	case d.Mod[isa.UseCC] != 0 && !usesFlags[d.Op]:
		d.cause, d.bad = NotImplemented, "carry of "+d.Form.Name()
	case d.Mod[isa.Cond] != isa.CondTrue:
		d.cause, d.bad = NotImplemented, "condition of "+d.Form.Name()
	}
}

// units reports whether an operation's operands are vectors, which start at any register.
func units(op isa.Op) bool {
	switch op {
	case isa.Tex, isa.TexFetch, isa.TexGather, isa.TexLod, isa.TexQuery, isa.TexGrad,
		isa.SurfLoad, isa.SurfStore, isa.SurfStoreFormat, isa.SurfAddress, isa.SurfRed:
		return true
	}
	return false
}

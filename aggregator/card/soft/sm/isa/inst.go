package isa

// An Inst is a decoded instruction. It is plain data: nothing in it refers to the word again
// except Form, which is the row.
type Inst struct {
	Op     Op
	Form   *Form
	Word   uint64 // as in memory; the upper half is zero in short forms
	Size   uint8  // in bytes: 4 or 8
	Join   bool   // lanes that execute it also take the join, afterwards
	Guard  Guard
	Dst    Operand
	PDst   [2]uint8   // predicates written; True discards
	Src    [4]Operand // Src[3] is the predicate input
	Mod    [NumMods]uint8
	Target uint32 // of a branch, in bytes from the start of the code region
}

// True is the predicate that is always true, and discards what is written to it.
const True = 7

// Zero is the register that reads zero, and discards what is written to it.
const Zero = 63

// A Guard is the predicate under which lanes execute an instruction.
type Guard struct {
	Pred uint8
	Not  bool
}

// Always reports whether a guard lets every lane pass.
func (g Guard) Always() bool { return g.Pred == True && !g.Not }

// Never reports whether a guard lets no lane pass.
func (g Guard) Never() bool { return g.Pred == True && g.Not }

// Kind says what an operand is.
type Kind uint8

// The kinds of operands.
const (
	None      Kind = iota
	Reg            // Count registers from Reg on
	Const          // c[Bank][Value]
	Imm            // Value
	Pred           // predicate Reg
	Special        // special register Reg
	Memory         // Space[Reg + Value]; Count is 2 if the base is a pair of registers
	Surface        // image Value, or the image that Reg names if Count is 1
	Reduction      // image Value of a reduction
	Texture        // texture Value
	Sampler        // sampler Value
	Flags          // all predicates and the condition code as one word
)

// An Operand is one resolved input or output.
type Operand struct {
	Kind  Kind
	Space Space
	Reg   uint8
	Count uint8 // registers
	Mask  uint8 // texture results: which of four components have a register; 0 elsewhere
	Bank  uint8
	Neg   bool
	Abs   bool
	Not   bool
	Value int64 // immediate as the operation sees it, or offset in bytes
}

// Space is an address space.
type Space uint8

// The address spaces.
const (
	Global Space = iota
	Local
	Shared
	ConstBank
	Attribute
	Vertex
	Pixel
)

var spaceNames = [...]string{"g", "l", "s", "c", "a", "p", "pix"}

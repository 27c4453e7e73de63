package compile

// A FrontEnd decodes programs of one instruction set.
type FrontEnd interface {
	// Decode returns the instruction at a program counter; false if there is none, or if it ends the program
	// with a fault whenever it runs.
	Decode(pc uint32) (Instruction, bool)
}

// An Instruction is what a front end says of one.
type Instruction struct {
	PC, Next uint32
	Word     uint64 // as memory has it
	Name     string // of its form, to count by
	Guard    Guard

	Flow   Flow
	Kind   EntryKind // that a Push makes, or a Leave goes to
	Target uint32    // of a Branch or Push
	Whole  bool      // a Branch is taken by all active lanes or by none
	Locks  bool      // lanes may hold locks, which end with them: only another executor ends lanes then
	// Of a Barrier: its number, and whether it makes all warps of the block wait for each other, and no more.
	Barrier uint32
	Quiet   bool
	Join    bool // the lanes that execute it wait at the nearest entry of the stack, afterwards

	// Mean emits what the instruction does in its lanes. Nil: another executor executes it.
	Mean func(*Builder)
	// Reads are the slots that it reads at most, in whatever executor, and Writes those that another
	// executor changes; nil is all.
	Reads, Writes []Slot
}

// A Guard is the predicate under which lanes execute an instruction.
type Guard struct {
	Pred   uint8
	Not    bool
	Always bool
}

// Flow is how an instruction changes the flow of control.
type Flow uint8

// The flows.
const (
	Straight Flow = iota
	Branch
	Push      // an entry of the stack, of the active lanes
	Leave     // to the nearest entry of a kind
	Exit      // ends lanes
	Barrier   // warps wait at it; another executor executes it unless it is Quiet
	Elsewhere // control flow of which only another executor knows where it leads
)

// EntryKind says what an entry of the control stack is for. The numbers are those of the front end's
// executors, but for two that the flow itself needs.
type EntryKind uint8

// The kinds that the flow knows: the other side of a branch, and where lanes join.
const (
	Diverge EntryKind = 0
	JoinTo  EntryKind = 1
)

// An Entry is a static entry of the control stack.
type Entry struct {
	Kind   EntryKind
	Target uint32
	Full   bool // all lanes are in it
}

// A Slot is a register, a predicate, or a bit of the condition code.
type Slot uint8

// The slots.
const (
	Registers  = 64
	Predicates = 8
	FirstPred  = Slot(Registers)
	FirstFlag  = FirstPred + Predicates
	Zero       = FirstFlag
	Sign       = FirstFlag + 1
	Carry      = FirstFlag + 2
	Overflow   = FirstFlag + 3
	Slots      = int(FirstFlag) + 4
)

// boolean reports whether a slot has a bit for each lane.
func (s Slot) boolean() bool { return s >= FirstPred }

// slotSet is a set of slots.
type slotSet [2]uint64

var allSlots = slotSet{^uint64(0), 1<<(Slots-64) - 1}

func setOf(slots []Slot) (s slotSet) {
	for _, i := range slots {
		s.add(i)
	}
	return s
}

func (s *slotSet) add(i Slot)           { s[i/64] |= 1 << (i % 64) }
func (s slotSet) has(i Slot) bool       { return s[i/64]>>(i%64)&1 != 0 }
func (s slotSet) or(o slotSet) slotSet  { return slotSet{s[0] | o[0], s[1] | o[1]} }
func (s slotSet) not(o slotSet) slotSet { return slotSet{s[0] &^ o[0], s[1] &^ o[1]} }

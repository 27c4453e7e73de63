package compile

// Code says why the function stopped.
type Code uint8

// The codes. After all but Done, this function or another executor goes on at the site's program counter.
const (
	Done        Code = iota // no lane can go on
	OutOfBudget             // on a back edge
	AtBarrier               // the barrier is not executed yet
	NotCompiled             // the instruction has no code: another executor executes it
	Fault                   // the instruction may be wrong: another executor repeats it, and finds out
)

// A Site is where the function stopped: the program counter, and the control stack but for its lanes, which
// are in the context.
type Site struct {
	Code  Code
	PC    uint32
	After uint32 // AtBarrier: behind it
	Stack []Entry
	// Next is the one of Program.Entries to start at when the way goes on here, or behind the barrier; -1 if
	// there is none.
	Next int
	// Barrier is the number of the barrier, if it is Quiet: all warps wait for each other, and get no result.
	Barrier uint32
	Quiet   bool
	// Live are the slots that active lanes read later. Others may have any values in them.
	Live []Slot
}

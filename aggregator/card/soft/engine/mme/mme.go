// Package mme is the macro processor of the graphics engine: it executes small programs, which
// a driver uploads, and which turn a method call with parameters into other methods.
//
// A [Run] is one call under way. It is plain data; [Run.Step] executes one instruction, which
// sends at most one method. The package has no locks or goroutines, and allocates nothing.
//
// Facts: envytools' envydis/macro.c, and the macros that Mesa uploads.
package mme

const (
	// CodeWords and Macros are the sizes of the processor's memories.
	CodeWords = 0x800
	Macros    = 0x80

	methodMask    = 0xfff // of a method's number: its offset / 4
	incrementMask = 0x3f
)

// Memory is what a driver uploads.
type Memory struct {
	Code  [CodeWords]uint32
	Start [Macros]uint32 // where each macro begins
}

// Run is one call of a macro.
type Run struct {
	// Active: the macro has not ended.
	Active bool
	// Param is the next parameter, if HasParam. A macro that wants one and has none waits.
	Param    uint32
	HasParam bool

	Registers [8]uint32 // the first is always 0
	Carry     bool
	// Method and Increment, in units of 4 bytes, belong to the next method sent.
	Method, Increment uint32

	PC uint32
	// Delayed is what happens after the instruction at PC.
	Delayed Delayed
	Target  uint32 // of a branch
}

// Delayed is what a branch or an end does after the instruction that follows it.
type Delayed uint8

const (
	Nothing Delayed = iota
	Branch
	End
)

// State says how a run stands after a step.
type State uint8

const (
	Running State = iota
	Waiting       // for a parameter; nothing was executed
	Ended
	Broken // the instruction is not defined, or its place is not; the run has ended
)

// Sent is a method that an instruction sent.
type Sent struct {
	Valid        bool
	Method, Data uint32 // Method is an offset in bytes
}

// Begin starts a macro with its first parameter.
func (r *Run) Begin(m *Memory, macro, param uint32) {
	*r = Run{Active: true, PC: m.Start[macro%Macros]}
	r.Registers[1] = param
}

// Step executes one instruction. shadow has the last data of each method.
func (r *Run) Step(m *Memory, shadow *[methodMask + 1]uint32) (Sent, State) {
	if r.PC >= CodeWords {
		return r.broken()
	}
	w := word(m.Code[r.PC])
	if w.operation() == opBranch {
		return Sent{}, r.branch(w)
	}
	route := w.route()
	if routes[route].param && !r.HasParam {
		return Sent{}, Waiting
	}
	result, ok := r.compute(w, shadow)
	if !ok {
		return r.broken()
	}
	var param uint32
	if routes[route].param {
		param, r.HasParam = r.Param, false
	}
	sent := r.deliver(w, result, param)
	return sent, r.advance(w.ends())
}

// broken ends a run that cannot go on.
func (r *Run) broken() (Sent, State) {
	r.Active = false
	return Sent{}, Broken
}

// branch carries out a branch. One in the place of a delayed branch or end is not defined. An
// end that is combined with a branch happens if the branch is not taken.
func (r *Run) branch(w word) State {
	if r.Delayed != Nothing {
		_, s := r.broken()
		return s
	}
	if taken := (r.Registers[w.a()] != 0) == w.ifNotZero(); !taken {
		return r.advance(w.ends())
	}
	target := (r.PC + w.immediate()) % (1 << 18)
	if w.annuls() {
		r.PC = target
		return Running
	}
	r.PC++
	r.Delayed, r.Target = Branch, target
	return Running
}

// advance goes to the next instruction.
func (r *Run) advance(ends bool) State {
	delayed := r.Delayed
	r.PC++
	r.Delayed = Nothing
	switch {
	case delayed == Branch: // an end in its place is ignored
		r.PC = r.Target
	case delayed == End:
		r.Active = false
		return Ended
	case ends:
		r.Delayed = End
	}
	return Running
}

// routes say where a result goes.
var routes = [8]struct {
	param  bool // a parameter is taken
	store  from // what the destination register gets
	method bool // the result is the next method's number and increment
	send   from
}{
	{param: true, store: fromParam},
	{store: fromResult},
	{store: fromResult, method: true},
	{param: true, store: fromParam, send: fromResult},
	{store: fromResult, send: fromResult},
	{param: true, store: fromParam, method: true},
	{param: true, store: fromResult, method: true, send: fromParam},
	{store: fromResult, method: true, send: fromHigh},
}

type from uint8

const (
	fromNothing from = iota
	fromResult
	fromParam
	fromHigh // bits 17:12 of the result
)

func (r *Run) deliver(w word, result, param uint32) (sent Sent) {
	route := &routes[w.route()]
	if w.destination() != 0 {
		if route.store == fromParam {
			r.Registers[w.destination()] = param
		} else {
			r.Registers[w.destination()] = result
		}
	}
	if route.method {
		r.Method, r.Increment = result&methodMask, result>>12&incrementMask
	}
	switch route.send {
	case fromNothing:
		return Sent{}
	case fromResult:
		sent.Data = result
	case fromParam:
		sent.Data = param
	case fromHigh:
		sent.Data = result >> 12 & incrementMask
	}
	sent.Valid, sent.Method = true, r.Method*4
	r.Method = (r.Method + r.Increment) & methodMask
	return sent
}

package engine

import "encoding/binary"

// OpKind is the kind of a context's unfinished operation.
type OpKind uint8

const (
	OpNone       OpKind = iota
	OpCopy              // Copy, then Release
	OpRelease           // Release, then Event
	OpConstant          // a constant-buffer word, held in Release
	OpUploadWord        // the rest of a word of inline data, held in GR.Upload
	OpAcquire           // wait until the word at Release.VA fits
	OpCondition         // read what SET_RENDER_ENABLE compares
	OpFill              // Fill
	OpBlit              // Blit
	OpGrid              // run a program, see Grid
)

// Op is work that is left between two calls.
type Op struct {
	Kind OpKind
	// Class has asked for the work and Stat is its place in Stats.
	Class uint16
	Stat  uint8

	Copy    Copy
	Fill    Fill
	Blit    Blit
	Release Release
	// Events has bit 1<<EventKind set for each event to be sent at the end.
	Events uint8
	// AcquireGE: the word must be at or past Release's head, else equal it.
	AcquireGE bool
}

// run continues the work. It returns a fault, or Done or Busy.
func (o *Op) run(env *Env) (Outcome, *Fault) {
	st := &env.Stats.class[o.Stat]
	switch o.Kind {
	case OpCopy:
		moved, fault := o.Copy.run(env)
		env.moved(int(o.Stat), moved)
		if fault != nil {
			return Faulted, fault
		}
		if !o.Copy.complete() {
			return Busy, nil
		}
		st.Lines.Add(o.Copy.Lines)
		o.Kind = OpRelease
		return o.release(env, st)
	case OpRelease:
		return o.release(env, st)
	case OpFill, OpBlit:
		if outcome, fault := o.pixels(env); fault != nil || outcome != Done {
			return outcome, fault
		}
	case OpConstant:
		if fault := o.Release.run(env); fault != nil {
			return Faulted, fault
		}
	case OpAcquire:
		ok, fault := o.acquired(env)
		if fault != nil {
			return Faulted, fault
		}
		if !ok {
			return Busy, nil
		}
		o.send(env, st)
	}
	o.Kind = OpNone
	return Done, nil
}

// pixels continues a Fill or a Blit.
func (o *Op) pixels(env *Env) (Outcome, *Fault) {
	var done bool
	var written uint64
	var fault *Fault
	if o.Kind == OpFill {
		done, written, fault = o.Fill.run(env)
	} else {
		done, written, fault = o.Blit.run(env)
	}
	env.moved(int(o.Stat), written)
	switch {
	case fault != nil:
		return Faulted, fault
	case !done:
		return Busy, nil
	}
	return Done, nil
}

func (o *Op) release(env *Env, st *ClassStats) (Outcome, *Fault) {
	if fault := o.Release.run(env); fault != nil {
		return Faulted, fault
	}
	if o.Release.Words != 0 {
		st.Semaphores.Add(1)
	}
	o.send(env, st)
	o.Kind = OpNone
	return Done, nil
}

// send sends the events that end the work.
func (o *Op) send(env *Env, st *ClassStats) {
	for k := EventInterrupt; k <= EventTrap; k++ {
		if o.Events&(1<<k) != 0 {
			st.Interrupts.Add(1)
			env.notify(Event{Class: o.Class, Kind: k})
		}
	}
	o.Events = 0
}

// acquired reads the word and compares it.
func (o *Op) acquired(env *Env) (bool, *Fault) {
	var word [4]byte
	if fault := read(env, o.Release.VA, word[:]); fault != nil {
		return false, fault
	}
	have, want := binary.LittleEndian.Uint32(word[:]), binary.LittleEndian.Uint32(o.Release.Head[:])
	if o.AcquireGE {
		return int32(have-want) >= 0, nil // the sequence may wrap
	}
	return have == want, nil
}

// read fills p from va.
func read(env *Env, va uint64, p []byte) *Fault {
	for len(p) > 0 {
		mem, fault := env.fetch(va, uint64(len(p)), false)
		if fault != nil {
			return fault
		}
		n := copy(p, mem)
		p, va = p[n:], va+uint64(n)
	}
	return nil
}

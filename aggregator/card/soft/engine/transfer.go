package engine

// Transfer is the part of every context that copies, uploads and releases semaphores.
type Transfer struct {
	// Op is the work that is left.
	Op Op
	// Upload is the launch that waits for inline data.
	Upload Upload
	// Fault is where the last call that answered Faulted stopped.
	Fault Fault
	// Refusal describes the last method that was Illegal.
	Refusal Refusal
}

// Step continues the work of the last call.
func (t *Transfer) Step(env *Env) Outcome { return t.work(env) }

// Inline takes no run of words at once.
func (t *Transfer) Inline(*Env, uint16, uint32, []byte) (int, Outcome) { return 0, Done }

// Waiting reports whether the work that is left is a report semaphore's
// acquire, which only a change of memory can end.
func (t *Transfer) Waiting() bool { return t.Op.Kind == OpAcquire }

// Stopped returns where the last call that answered Faulted stopped, and what was Illegal.
func (t *Transfer) Stopped() (Fault, Refusal) { return t.Fault, t.Refusal }

// Upload is a launch whose source is the pushbuffer. The words of LOAD_INLINE_DATA
// are one stream of Length*Lines bytes: a line that is no multiple of four bytes long
// starts within a word. Bytes of the last word beyond the end are ignored.
type Upload struct {
	Open bool
	Dst  Surface
	// Length and Lines are the destination's; Row and X say how far it is.
	Length, Lines, Row, X uint64

	Release Release
	Events  uint8

	// Word is a word of which Pos to End are still to be written: its
	// destination faulted.
	Word     [4]uint8
	Pos, End uint8
}

// left is how many bytes of the stream are missing.
func (u *Upload) left() uint64 {
	if u.Row >= u.Lines {
		return 0
	}
	return (u.Lines-u.Row)*u.Length - u.X
}

// write stores the next bytes of the stream and reports how many: whole words if the step's time
// is over before all are stored.
func (u *Upload) write(env *Env, p []byte) (int, *Fault) {
	for done := 0; ; {
		if done == len(p) || env.Over() && done > 0 && done%4 == 0 {
			return done, nil
		}
		n := u.Dst.run(u.X, min(uint64(len(p)-done), u.Length-u.X))
		mem, fault := env.fetch(u.Dst.at(u.X, u.Row), n, true)
		if fault != nil {
			return done, fault
		}
		k := copy(mem, p[done:done+int(n)])
		done += k
		if u.X += uint64(k); u.X == u.Length {
			u.X, u.Row = 0, u.Row+1
		}
	}
}

// work continues the operation that is left.
func (t *Transfer) work(env *Env) Outcome {
	if t.Op.Kind == OpUploadWord {
		if fault := t.finishWord(env); fault != nil {
			return t.faulted(env, fault)
		}
	}
	o, fault := t.Op.run(env)
	if fault != nil {
		return t.faulted(env, fault)
	}
	return o
}

// faulted notes where an operation stopped.
func (t *Transfer) faulted(env *Env, fault *Fault) Outcome {
	t.Fault = *fault
	env.Stats.class[t.Op.Stat].Faults.Add(1)
	return Faulted
}

// load takes words of inline data, at least one. Words that no upload
// waits for are dropped and counted.
func (t *Transfer) load(env *Env, c *Class, data []byte) (int, Outcome) {
	st := &env.Stats.class[c.place]
	u := &t.Upload
	if !u.Open {
		st.Dropped.Add(uint64(len(data) / 4))
		return len(data), Done
	}
	n := min(len(data), env.words())
	left := u.left()
	if left < uint64(n) {
		n = int(left+3) &^ 3
	}
	done, fault := u.write(env, data[:min(uint64(n), left)])
	env.moved(c.place, uint64(done))
	if fault != nil {
		n = done&^3 + 4
		u.Pos, u.End = uint8(done&3), uint8(min(4, left-uint64(done&^3)))
		copy(u.Word[:], data[n-4:n])
		st.InlineWords.Add(uint64(n / 4))
		t.Op = c.op(OpUploadWord)
		return n, t.faulted(env, fault)
	}
	if uint64(done) < min(uint64(n), left) {
		n = done
	}
	st.InlineWords.Add(uint64(n / 4))
	if u.left() == 0 {
		t.Op = c.op(OpNone)
		return n, t.finishUpload(env)
	}
	return n, Done
}

// finishWord writes the rest of a word whose destination had faulted.
func (t *Transfer) finishWord(env *Env) *Fault {
	u := &t.Upload
	n, fault := u.write(env, u.Word[u.Pos:u.End])
	u.Pos += uint8(n)
	env.moved(int(t.Op.Stat), uint64(n))
	if fault != nil {
		return fault
	}
	t.Op.Kind = OpNone
	if u.left() == 0 {
		t.closeUpload(env)
	}
	return nil
}

// closeUpload turns a complete upload into the work of its completion.
func (t *Transfer) closeUpload(env *Env) {
	env.Stats.class[t.Op.Stat].Lines.Add(t.Upload.Lines)
	t.Op.Kind, t.Op.Release, t.Op.Events = OpRelease, t.Upload.Release, t.Upload.Events
	t.Upload = Upload{}
}

func (t *Transfer) finishUpload(env *Env) Outcome {
	t.closeUpload(env)
	return t.work(env)
}

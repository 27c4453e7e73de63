package engine

import "encoding/binary"

// Release is a semaphore or report to be written: one or two words, or four of which
// the last two are the time. A Wide one has two words of payload.
type Release struct {
	// Words is 0 (nothing), 1, 2 if Wide, or 4.
	Words uint8
	Wide  bool
	// Reduce combines the payload with what memory has, and is one more than the Reduction.
	Reduce   uint8
	Unsigned bool
	// Stamped: the time has been taken.
	Stamped bool
	// Pos is the progress of each part: the 12 bytes at Tail, then the 4 at VA. A poller of
	// the first word finds the others complete.
	TailPos, HeadPos uint8
	VA, Tail         uint64
	Head             [8]uint8
	Rest             [12]uint8
}

// newRelease prepares a release of {word, 0, time}, or of the word alone.
func newRelease(va uint64, alone bool, word uint32) Release {
	r := Release{Words: 4, VA: va, Tail: va + 4}
	if alone {
		r.Words = 1
	}
	binary.LittleEndian.PutUint32(r.Head[:], word)
	return r
}

// run writes what is left.
func (r *Release) run(env *Env) *Fault {
	if r.Words == 4 {
		if !r.Stamped {
			binary.LittleEndian.PutUint64(r.Rest[4:], env.Now())
			r.Stamped = true
		}
		tail, rest := r.Tail, r.Rest[:]
		if r.Wide {
			tail, rest = r.VA+8, r.Rest[4:]
		}
		if fault := put(env, tail, rest, &r.TailPos); fault != nil {
			return fault
		}
	}
	switch {
	case r.Words == 0:
		return nil
	case r.Reduce != 0:
		return r.reduce(env)
	}
	return put(env, r.VA, r.Head[:r.size()], &r.HeadPos)
}

// size is how many bytes the payload has.
func (r *Release) size() int {
	if r.Wide {
		return 8
	}
	return 4
}

// reduce combines the payload with memory, which is aligned.
func (r *Release) reduce(env *Env) *Fault {
	n := r.size()
	mem, fault := env.fetch(r.VA, uint64(n), true)
	if fault == nil && len(mem) < n {
		fault = &Fault{VA: r.VA, Write: true}
	}
	if fault == nil {
		Reduction(r.Reduce-1).Apply(mem, binary.LittleEndian.Uint64(r.Head[:]), r.Unsigned)
	}
	return fault
}

// put writes p at va from *pos on and keeps *pos up to date. Four or eight bytes that lie
// together are written with one store.
func put(env *Env, va uint64, p []byte, pos *uint8) *Fault {
	for int(*pos) < len(p) {
		mem, fault := env.fetch(va+uint64(*pos), uint64(len(p)-int(*pos)), true)
		if fault != nil {
			return fault
		}
		if *pos == 0 && len(p) == 4 && len(mem) == 4 {
			binary.LittleEndian.PutUint32(mem, binary.LittleEndian.Uint32(p))
			*pos = 4
			continue
		}
		if *pos == 0 && len(p) == 8 && len(mem) == 8 {
			binary.LittleEndian.PutUint64(mem, binary.LittleEndian.Uint64(p))
			*pos = 8
			continue
		}
		*pos += uint8(copy(mem, p[*pos:]))
	}
	return nil
}

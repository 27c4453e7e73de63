package engine

import "encoding/binary"

// Release is a semaphore or report to be written: one word, or four of which
// the last two are the time.
type Release struct {
	// Words is 0 (nothing), 1 or 4.
	Words uint8
	// Stamped: the time has been taken.
	Stamped bool
	// Pos is the progress of each part: the 12 bytes at Tail, then the 4 at VA. A poller of
	// the first word finds the others complete.
	TailPos, HeadPos uint8
	VA, Tail         uint64
	Head             [4]uint8
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
		if fault := put(env, r.Tail, r.Rest[:], &r.TailPos); fault != nil {
			return fault
		}
	}
	if r.Words == 0 {
		return nil
	}
	return put(env, r.VA, r.Head[:], &r.HeadPos)
}

// put writes p at va from *pos on and keeps *pos up to date. Four bytes that lie
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
		*pos += uint8(copy(mem, p[*pos:]))
	}
	return nil
}

package engine

// Pointers of the upload methods, alike in all graphics classes, as places in
// GR.Values.
const (
	mmeCodePointer  = 0x114 / 4
	mmeStartPointer = 0x11c / 4
)

func loadMMECode(g *GR, env *Env, c call) Outcome {
	return loadMME(g, env, c, g.MME.Code[:], mmeCodePointer)
}

func loadMMEStart(g *GR, env *Env, c call) Outcome {
	return loadMME(g, env, c, g.MME.Start[:], mmeStartPointer)
}

// loadMME stores a word at the pointer and advances it. A word beyond the memory is dropped
// and counted.
func loadMME(g *GR, env *Env, c call, ram []uint32, pointer int) Outcome {
	at := &g.Values[c.class.place][pointer]
	if uint64(*at) < uint64(len(ram)) {
		ram[*at] = c.data
	} else {
		env.Stats.class[c.class.place].Dropped.Add(1)
	}
	*at++
	return Done
}

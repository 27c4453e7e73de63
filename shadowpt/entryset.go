package shadowpt

// entrySet is a set of directory entries.
type entrySet [DirEntries / 64]uint64

var noEntries entrySet

func (e *entrySet) add(i int)    { e[i/64] |= 1 << (i % 64) }
func (e *entrySet) remove(i int) { e[i/64] &^= 1 << (i % 64) }

// addAll adds the members of o.
func (e *entrySet) addAll(o *entrySet) {
	for w, m := range o {
		e[w] |= m
	}
}

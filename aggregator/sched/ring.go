package sched

// Added is how many entries a doorbell added to a ring of a power of two: from
// the old GP_PUT to the new one. It is false if an index is not in the ring, or
// if the ring, of whose entries the card has not fetched waiting, has no room for
// so many: one entry stays free, or a full ring would look empty.
func Added(old, put, size uint32, waiting int) (n int, ok bool) {
	if size == 0 || size&(size-1) != 0 || old >= size || put >= size {
		return 0, false
	}
	n = int((put - old) & (size - 1))
	return n, waiting >= 0 && n+waiting < int(size)
}

package gf100

// Time returns PTIMER's time in nanoseconds, as 009400 and 009410 read it.
func (f *Face) Time() uint64 { return f.timer.now() }

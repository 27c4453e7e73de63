package gf100

// TimeOffset returns what PTIMER adds to FaceConfig.Clock, modulo 2^64. It
// changes only when a driver sets the time.
func (f *Face) TimeOffset() uint64 { return f.timer.offset }

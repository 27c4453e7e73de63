package soft_test

import (

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// window maps 1 MiB of VRAM at the start of BAR3.
func (r *rig) bar3() uint64 {
	s := r.newSpace()
	mem := r.alloc(1 << 20)
	s.mapVRAM(0, mem, 1<<20)
	r.wr(0x1714, 1<<31|uint32(r.instance(s, 16<<20-1)>>12))
	return mem
}

// accesses are those that a probe makes hundreds of thousands of times.
var accesses = []struct {
	name  string
	bar   int
	off   uint64
	n     int
	write bool
}{
	{"register-read", soft.BAR0, 0x400700, 4, false},
	{"register-write", soft.BAR0, 0x400204, 4, true},
	{"interrupt-status-read", soft.BAR0, 0x100, 4, false},
	{"PRAMIN-read", soft.BAR0, 0x700100, 4, false},
	{"PRAMIN-write", soft.BAR0, 0x700100, 4, true},
	{"BAR3-read", soft.BAR3, 0x1234, 4, false},
	{"BAR3-byte-write", soft.BAR3, 0x1234, 1, true},
	{"BAR1-write", soft.BAR1, 0x40, 4, true},
	{"doorbell-stray", soft.BAR1, 0x508c, 4, true},
}

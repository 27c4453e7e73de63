package push

// Methods of the compute class. Source: cl90c0.h.
const (
	cpLocalLow      Method = 0x204 // then LocalHigh and the stack
	cpSharedWindow  Method = 0x214
	cpGrid          Method = 0x238 // Y and X, then Z
	cpShared        Method = 0x24c // then threads and barriers
	cpRegisters     Method = 0x2c0
	cpLaunch        Method = 0x368
	cpBlock         Method = 0x3ac // Y and X, then Z, then the program's offset
	cpLocalWindow   Method = 0x77c
	cpLocal         Method = 0x790 // address, size
	cpRegion        Method = 0x1608
	cpConstants     Method = 0x2380 // size, address
	cpBindConstants Method = 0x1694
	cpInvalidate    Method = 0x1698
)

// Sizes that every Launch has, in bytes of a thread, a block and a warp.
const (
	LaunchLocal  = 256
	LaunchShared = 4096
	launchStack  = 0x800
)

// Windows of generic addresses that every Launch has.
const (
	SharedWindow = 0xfe000000
	LocalWindow  = 0xff000000
)

// Launch is a launch of a program: blocks in a row, of threads in a row.
type Launch struct {
	Code            uint64 // of the first instruction
	Blocks, Threads uint32
	Constants       uint64 // bank 0, if not zero, of 4 KiB
	Local           uint64 // LaunchLocal bytes for each thread of 48 warps
}

// Launch starts a program with 63 registers and 16 barriers.
func (b *Buffer) Launch(sc Subchan, l Launch) *Buffer {
	if l.Constants != 0 {
		b.Inc(sc, cpConstants, 4096, hi(l.Constants), lo(l.Constants)).Inc(sc, cpBindConstants, 1)
	}
	const codeAndConstants = 1<<0 | 1<<12
	return b.Inc(sc, cpInvalidate, codeAndConstants).
		Inc(sc, cpLocalLow, LaunchLocal, 0, launchStack).
		Inc(sc, cpSharedWindow, SharedWindow).Inc(sc, cpLocalWindow, LocalWindow).
		Inc(sc, cpLocal, hi(l.Local), lo(l.Local), 0, LaunchLocal*32*48).
		Inc(sc, cpGrid, 1<<16|l.Blocks, 1).
		Inc(sc, cpShared, LaunchShared, l.Threads, 16).Inc(sc, cpRegisters, 63).
		Inc(sc, cpRegion, hi(l.Code), lo(l.Code)).
		Inc(sc, cpBlock, 1<<16|l.Threads, 1, 0).
		Inc(sc, cpLaunch, 0x1000)
}

// Compute is the compute class at its subchannel.
var Compute = Object{ClassCompute, UnitGR, 1}

package push

// Unit is the engine field of SET_OBJECT data, bits 20:16: Fermi chooses a
// subchannel's engine by it.
type Unit uint32

// Units of GF100.
const (
	UnitGR  Unit = 0
	UnitCE0 Unit = 4
	UnitCE1 Unit = 5
)

// Classes of GF100.
const (
	ClassM2MF    = 0x9039
	ClassCompute = 0x90c0
	ClassCE0     = 0x90b5
	ClassCE1     = 0x90b8
)

// ClassHopperCopy copies on a GH100, whose channels choose the engine, so that its Unit is none.
const ClassHopperCopy = 0xc8b5

// ClassNoSuch is no class of any NVIDIA chip.
const ClassNoSuch = 0x9bad

// Host methods: below 100h, the same on every subchannel. Source: cl906f.h.
const (
	HostSetObject  Method = 0x00
	HostNop        Method = 0x08
	HostSemaphoreA Method = 0x10 // VA 39:32, then 31:2, the payload, the operation
	HostYield      Method = 0x80
	HostNonStall   Method = 0x20
	HostMemOpA     Method = 0x28
	HostNoSuch     Method = 0xfc // not in cl906f.h
)

// hostSemaphore of a GH100: VA 31:0, then 56:32, the payload of 64 bits, the operation. Source: clc86f.h.
const hostSemaphore Method = 0x5c

// Semaphore operations and flags, the last word of a semaphore method.
const (
	SemAcquireEqual = 1
	SemRelease      = 2
	SemAcquireGE    = 4 // (memory - payload) >= 0, signed
	SemAcquireAnd   = 8 // (memory & payload) != 0

	SemSwitch  = 1 << 12 // let another channel run while an acquire fails
	SemOneWord = 1 << 24 // write the payload only; else {payload, 0, time lo, time hi}
)

// Object is a class of a unit at its subchannel.
type Object struct {
	Class   uint32
	Unit    Unit
	Subchan Subchan
}

// SetObject binds a class to a subchannel.
func (b *Buffer) SetObject(o Object) *Buffer {
	return b.Inc(o.Subchan, HostSetObject, uint32(o.Unit)<<16|o.Class)
}

// Semaphore makes the host release or acquire the semaphore at va.
func (b *Buffer) Semaphore(va uint64, payload, op uint32) *Buffer {
	return b.Inc(0, HostSemaphoreA, hi(va), lo(va), payload, op)
}

// HopperRelease makes the host of a GH100 write the payload to va, once the work before is done.
func (b *Buffer) HopperRelease(va uint64, payload uint32) *Buffer {
	const release, wait = 1 << 0, 1 << 20
	return b.Inc(0, hostSemaphore, lo(va), hi(va), payload, 0, release|wait)
}

// HopperAcquire makes the host of a GH100 wait for the payload at va, while other channels run.
func (b *Buffer) HopperAcquire(va uint64, payload uint32) *Buffer {
	return b.Inc(0, hostSemaphore, lo(va), hi(va), payload, 0, SemSwitch)
}

// Release makes the host of a GF100 write the payload to va.
func (b *Buffer) Release(va uint64, payload uint32) *Buffer {
	return b.Semaphore(va, payload, SemRelease|SemOneWord)
}

// Methods of the GR classes that every one of them has, or none.
const (
	GRNop    Method = 0x100
	GRNoSuch Method = 0x3ff8
)

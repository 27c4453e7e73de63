package interp

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Lanes is how many threads a warp has.
const Lanes = 32

// Memory is the channel's address space. Accesses are aligned to their size; an error means that
// the address is not mapped, or not writable.
type Memory interface {
	Load(addr uint64, to []byte) error
	Store(addr uint64, from []byte) error
	// Update replaces a value of 4 or 8 bytes by what f makes of it, at once for all users of
	// the memory, and returns the old value.
	Update(addr uint64, size int, f func(old uint64) uint64) (uint64, error)
}

// A Bank is a constant buffer.
type Bank struct {
	Addr  uint64
	Size  uint32
	Valid bool
}

// A Launch is what all blocks of a grid share. Sizes are in bytes.
type Launch struct {
	Memory  Memory
	Program *Program
	Units   Units  // nil if there are none
	Entry   uint32 // of the program, in the code region
	Grid    [3]uint32
	Block   [3]uint32
	GridID  uint32

	Registers uint32 // general registers of a thread
	Barriers  uint32 // of a block
	Shared    uint32 // of a block
	Local     uint64 // address of the local memory of a block's threads, see LocalSize
	LocalPos  uint32 // of a thread, from address zero up
	LocalNeg  uint32 // of a thread, up to the end of 24 bits of address
	Banks     [32]Bank

	// Global addresses from these on are shared and local memory, for 16 MiB each. Zero is none.
	SharedWindow, LocalWindow uint32
}

const windowSize = 1 << 24

// Warps is how many a block has.
func (l *Launch) Warps() uint32 { return (l.threads() + Lanes - 1) / Lanes }

func (l *Launch) threads() uint32 { return l.Block[0] * l.Block[1] * l.Block[2] }

// LocalStride is the distance of two threads' local memory: what a thread has, in whole pieces of
// the longest access.
func (l *Launch) LocalStride() uint64 { return (uint64(l.LocalPos) + uint64(l.LocalNeg) + 15) &^ 15 }

// LocalSize is the bytes of local memory of a block, thread after thread.
func (l *Launch) LocalSize() uint64 {
	return uint64(l.Warps()) * Lanes * l.LocalStride()
}

// A Block is one thread block in execution.
type Block struct {
	Launch *Launch
	*BlockState

	now   exec          // the instruction in execution
	fence atomic.Uint32 // a change orders memory
	// What it gives to a unit or to Memory, so that it allocates nothing.
	texels Texels
	pixel  Pixel
	bytes  [16]byte
}

// BlockState is what a block has besides its launch. It is plain data.
type BlockState struct {
	ID       [3]uint32
	Warps    []Warp
	Shared   []byte
	Barriers [16]Barrier
	Locks    []Lock
	Turn     int    // the warp whose turn it is
	Left     int    // instructions of its turn
	Clock    uint64 // warp instructions so far
}

// A Warp is 32 lanes that share a program counter.
type Warp struct {
	PC     uint32
	Active uint32 // lanes that run
	Exited uint32 // lanes that ended, or never were
	Regs   [isa.Zero + 1][Lanes]uint32
	Preds  [8]uint32 // lanes by predicate; the last is all ones
	Flags  Flags
	Stack  []Entry
	Wait   int8   // the barrier that it waits at, or NoBarrier
	WaitPC uint32 // the barrier instruction
	WaitBy uint32 // lanes that arrived
}

// Flags is the condition code, one bit a lane.
type Flags struct{ Zero, Sign, Carry, Overflow uint32 }

// NoBarrier says that a warp does not wait.
const NoBarrier = -1

// An Entry of a warp's control stack says where lanes go on.
type Entry struct {
	Kind   EntryKind
	Target uint32
	Lanes  uint32
}

// EntryKind says what made an entry.
type EntryKind uint8

// The kinds of entries.
const (
	Diverge    EntryKind = iota // the other side of a branch
	JoinTo                      // joinat
	BreakTo                     // prebrk
	ContTo                      // precont
	ReturnTo                    // preret, call
	WholeQuads                  // quadon
)

// A Barrier counts the warps that arrived.
type Barrier struct {
	Arrived  int // warps, waiting or not
	Expected int // warps; zero until one arrives
	True     int // lanes whose predicate was true
	Any, Not bool
}

// A Lock is a word of shared memory that a lane holds.
type Lock struct {
	Addr uint32
	Warp int
	Lane uint8
}

// NewBlock makes a block that has not run.
func NewBlock(l *Launch, id [3]uint32) *Block {
	b := &Block{Launch: l, BlockState: new(BlockState)}
	b.Reset(id)
	return b
}

// Reset makes it another block of its launch, which has not run. It uses the memory again, also that
// of another launch.
func (b *Block) Reset(id [3]uint32) {
	n := b.Launch.threads()
	warps, shared := sized(b.Warps, b.Launch.Warps()), sized(b.Shared, b.Launch.Shared)
	clear(shared)
	*b.BlockState = BlockState{ID: id, Shared: shared, Warps: warps, Locks: b.Locks[:0], Turn: len(warps) - 1}
	for i := range b.Warps {
		w := &b.Warps[i]
		clear(w.Regs[:min(b.Launch.Registers, isa.Zero)]) // nobody reaches others
		w.PC, w.Active, w.Wait, w.Stack = b.Launch.Entry, ^uint32(0), NoBarrier, w.Stack[:0]
		w.Preds, w.Flags, w.WaitPC, w.WaitBy = [8]uint32{isa.True: ^uint32(0)}, Flags{}, 0, 0
		if rest := n - uint32(i)*Lanes; rest < Lanes {
			w.Active = 1<<rest - 1
		}
		w.Exited = ^w.Active
	}
}

// sized returns n elements: of the slice, if it has so many.
func sized[T any](s []T, n uint32) []T {
	if uint32(cap(s)) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Done reports whether all lanes ended.
func (b *BlockState) Done() bool {
	for i := range b.Warps {
		if !b.Warps[i].Done() {
			return false
		}
	}
	return true
}

// Done reports whether all lanes ended.
func (w *Warp) Done() bool { return w.Exited == ^uint32(0) }

// Runs reports whether the warp can execute an instruction.
func (w *Warp) Runs() bool { return w.Wait == NoBarrier && !w.Done() }

// thread returns a lane's place in the block.
func (b *Block) thread(warp, lane int) [3]uint32 {
	n, size := uint32(warp*Lanes+lane), &b.Launch.Block
	return [3]uint32{n % size[0], n / size[0] % size[1], n / (size[0] * size[1])}
}

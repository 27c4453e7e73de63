// Package sm is the shader processor: what runs programs. A [Launch] is all that a program gets
// from the state of the compute class; whoever executes it needs no method.
//
// The package has no locks or goroutines.
package sm

// Launch is a grid of blocks of threads that run a program. It is plain data.
type Launch struct {
	// Program is the address of the first instruction; branches to absolute addresses count
	// from Region.
	Program, Region uint64

	Grid, Block [3]uint32 // blocks, and threads of a block, in X, Y and Z
	ID          uint32    // what the driver calls the grid
	Param       uint32    // what started it

	Registers uint32 // of a thread
	Barriers  uint32 // of a block

	// Shared is the bytes of a block's shared memory. A thread's local memory is LocalLow bytes
	// from address 0 up, and LocalHigh bytes from the top of 16 MiB down.
	Shared              uint32
	LocalLow, LocalHigh uint32
	// Generic addresses in these windows of 16 MiB are shared and local memory.
	SharedWindow, LocalWindow uint64
	// Local is where the driver wants local memory to be kept.
	Local Range

	Constants [ConstantBanks]Constants
	Textures  Textures
	Surfaces  [Surfaces]Surface
}

// ConstantBanks is how many banks of constants a program can name.
const ConstantBanks = 32

// Range is bytes of the address space.
type Range struct{ Address, Size uint64 }

// Constants is a bank of constants. A read beyond the size, or of a bank that is not bound, ends
// the program.
type Constants struct {
	Range
	Bound bool
}

// Textures are the textures and samplers that a program can name.
type Textures struct {
	// Headers and Samplers are pools of descriptors of 32 bytes.
	Headers, Samplers Pool
	// HeaderSlots and SamplerSlots say which descriptors are bound.
	HeaderSlots, SamplerSlots [TextureSlots]Slot
	// Linked: a header's slot also names the sampler.
	Linked bool
	// Seamless: a filter at the edge of a cube's face goes on with its neighbour.
	Seamless bool
}

// TextureSlots is how many textures a program can name.
const TextureSlots = 256

// Pool is a table of descriptors.
type Pool struct {
	Address uint64
	Last    uint32 // index
}

// DescriptorSize is the size of a descriptor in a Pool.
const DescriptorSize = 32

// Slot is the index of a descriptor.
type Slot struct {
	Index uint32
	Bound bool
}

// Surfaces is how many surfaces a program can name.
const Surfaces = 8

// Surface is memory that a program reads and writes as a picture.
type Surface struct {
	Address uint64
	// Width is in elements, or for a linear surface in bytes.
	Width, Height uint32
	Linear        bool
	Format        uint8 // of colours, as SET_SU_LD_ST_TARGET_FORMAT counts them; 0 is none
	Zeta          bool  // it has a depth format instead
	// Log2Block is the size of a block in GOBs: width and height.
	Log2Block [2]uint8
}

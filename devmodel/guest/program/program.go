package program

import (
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Kind is the kind of an operation.
type Kind int

const (
	Write    Kind = iota // the processor writes noise to a buffer
	Read                 // the processor compares part of a buffer with the model
	Map                  // pages are mapped, and replace older mappings
	Unmap                // pages are unmapped
	Copy                 // an engine copies
	Inline               // M2MF writes words from the pushbuffer
	Fault                // a copy that faults at its first byte; the channel is created again
	Recreate             // a channel is closed and created again
	Store                // the processor writes random data while engines work, outside of memory that they use
	Show                 // a buffer is also shown in BAR3 until the engines' work is done: its pages move during that
)

var kindNames = [...]string{"write", "read", "map", "unmap", "copy", "inline", "fault", "recreate", "store", "show"}

func (k Kind) String() string { return kindNames[k] }

// Op is one operation. Which fields count depends on its kind.
type Op struct {
	Kind   Kind
	Buf    int    // Write, Read, Map, Store, Show
	Off    uint64 // into Buf, in bytes
	N      uint64 // bytes
	Seed   uint64 // of noise
	Space  int    // Map, Unmap
	VA     uint64 // Map, Unmap
	Flags  guest.Flags
	Chan   int // Copy, Inline, Fault, Recreate
	Engine guest.Engine
	Dst    uint64 // Copy, Inline, Fault
	Src    uint64 // Copy, Fault
	Poll   bool   // the next wait polls
	// Of a Fault: which side faults, and why.
	OnDst  bool
	Reason shadowpt.Reason
}

func (o Op) String() string {
	switch o.Kind {
	case Write, Read, Store:
		return fmt.Sprintf("%v buffer %d, %d bytes at %#x", o.Kind, o.Buf, o.N, o.Off)
	case Map:
		return fmt.Sprintf("map %d bytes at %#x of buffer %d at space %d VA %#x, flags %#x", o.N, o.Off, o.Buf, o.Space, o.VA, o.Flags)
	case Unmap:
		return fmt.Sprintf("unmap %d bytes at space %d VA %#x, flags %#x", o.N, o.Space, o.VA, o.Flags)
	case Recreate:
		return fmt.Sprintf("recreate channel %d", o.Chan)
	case Show:
		return fmt.Sprintf("show buffer %d", o.Buf)
	}
	return fmt.Sprintf("%v on channel %d by %v: %d bytes from %#x to %#x", o.Kind, o.Chan, o.Engine, o.N, o.Src, o.Dst)
}

// BufferSpec is a buffer that a program starts with, full of noise.
type BufferSpec struct {
	Size uint64
	RAM  bool
	Seed uint64
}

// ChannelSpec is a channel that a program starts with.
type ChannelSpec struct {
	ID    int
	Space int
	View  bool // through a second instance of the space
	guest.ChannelConfig
}

// Program is a guest's program.
type Program struct {
	Buffers  []BufferSpec
	Spaces   int
	Channels []ChannelSpec
	Ops      []Op
}

func (p Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d spaces, buffers %+v, channels %+v\n", p.Spaces, p.Buffers, p.Channels)
	for i, o := range p.Ops {
		fmt.Fprintf(&b, "%3d %v\n", i, o)
	}
	return b.String()
}

// noise is the data of a seed: cheap, and different at every word.
func noise(seed, n uint64) []byte {
	b := make([]byte, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	return b
}

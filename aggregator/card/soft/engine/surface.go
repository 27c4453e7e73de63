package engine

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"

// Layout is how a surface lies in memory.
type Layout uint8

const (
	// LayoutPitch: line after line, Stride bytes apart.
	LayoutPitch Layout = iota
	// LayoutGOB: blocks of GOBs.
	LayoutGOB
	// LayoutSector: blocks 16 bytes wide whose lines follow each other (tile
	// width 14 of the copy engines).
	LayoutSector
)

const sector = 16

// Surface is one side of a copy: where a byte of a line lies. All fields are
// set at the launch.
type Surface struct {
	Layout Layout
	// BlockRows and BlockBytes are log2 of a block's lines in one layer and of
	// its bytes in all its layers.
	BlockRows, BlockBytes uint8
	// VA is the address of line 0, byte 0 of the layer.
	VA uint64
	// Stride is the distance in bytes of two lines (pitch) or of two rows of
	// blocks.
	Stride uint64
	// X (bytes) and Y (lines) are where the copy starts in the layer.
	X, Y uint64
}

// at is the address of byte x of line y, counted from the start of the copy. Env.fetch wraps it.
func (s *Surface) at(x, y uint64) uint64 {
	x += s.X
	y += s.Y
	switch s.Layout {
	case LayoutGOB:
		row := y & (1<<s.BlockRows - 1)
		return s.VA + (y>>s.BlockRows)*s.Stride + x/texture.GOBWidth<<s.BlockBytes + row/texture.GOBHeight*texture.GOBBytes + texture.InGOB(x, y)
	case LayoutSector:
		row := y & (1<<s.BlockRows - 1)
		return s.VA + (y>>s.BlockRows)*s.Stride + x/sector<<s.BlockBytes + row*sector + x%sector
	}
	return s.VA + y*s.Stride + x
}

// run is how many bytes from x on lie together in a line, at most n.
func (s *Surface) run(x, n uint64) uint64 {
	if s.Layout == LayoutPitch {
		return n
	}
	return min(n, sector-(s.X+x)%sector)
}

// slot picks one of eight windows for a byte: by line in a pitch surface, by
// GOB (four can meet in a cell) in a block-linear one.
func (s *Surface) slot(x, y uint64) uint64 {
	switch s.Layout {
	case LayoutGOB:
		return (s.Y+y)>>3&1<<1 | (s.X+x)>>6&1
	case LayoutSector:
		return (s.Y+y)>>3&1<<2 | (s.X+x)>>4&3
	}
	return y & 7
}

// cell is the extent of the natural unit of a block-linear copy.
func (s *Surface) cell() (width, height uint64) {
	if s.Layout == LayoutSector {
		return sector, texture.GOBHeight
	}
	return texture.GOBWidth, texture.GOBHeight
}

// blockLinear describes a layer of a surface of lines of width bytes; its blocks are 1<<high GOBs
// high and 1<<deep GOBs deep.
func blockLinear(va, width, height uint64, high, deep uint32, layer uint64) Surface {
	wide := (width + texture.GOBWidth - 1) / texture.GOBWidth
	rows := (height + texture.GOBHeight<<high - 1) >> (3 + high)
	block := 9 + high + deep
	va += layer >> deep * rows * wide << block
	va += layer & (1<<deep - 1) << (9 + high)
	return Surface{Layout: LayoutGOB, BlockRows: uint8(3 + high), BlockBytes: uint8(block), VA: va, Stride: wide << block}
}

// Package surface is the CPU's idea of a block-linear surface: where byte x of
// line y of layer z lies. Guest programs hold the GPU's copies against it.
//
// Memory is a sequence of blocks, a block a sequence of GOBs, a GOB 64 bytes by 8
// lines. Source: envytools, docs/hw/memory/g80-surface.rst.
package surface

import "fmt"

// Size of a GOB.
const (
	GOBWidth  = 64 // bytes
	GOBHeight = 8  // lines
	GOBBytes  = GOBWidth * GOBHeight
)

// Layout describes a block-linear surface.
type Layout struct {
	Width, Height, Depth   uint32 // bytes, lines, layers
	BlockW, BlockH, BlockD uint32 // log2 of the GOBs in a block, each way
}

// Validate refuses a layout that no engine takes.
func (l Layout) Validate() error {
	if l.Width == 0 || l.Height == 0 || l.Depth == 0 {
		return fmt.Errorf("surface %dx%dx%d: no side may be 0", l.Width, l.Height, l.Depth)
	}
	if l.BlockW > 3 || l.BlockH > 5 || l.BlockD > 5 {
		return fmt.Errorf("block of 2^%d x 2^%d x 2^%d GOBs: at most 2^3 x 2^5 x 2^5", l.BlockW, l.BlockH, l.BlockD)
	}
	return nil
}

// blocks returns the number of blocks each way.
func (l Layout) blocks() (x, y, z uint64) {
	return up(l.Width, GOBWidth<<l.BlockW), up(l.Height, GOBHeight<<l.BlockH), up(l.Depth, 1<<l.BlockD)
}

func up(n, unit uint32) uint64 { return (uint64(n) + uint64(unit) - 1) / uint64(unit) }

// Size is the number of bytes the surface takes, whole blocks.
func (l Layout) Size() uint64 {
	x, y, z := l.blocks()
	return x * y * z * l.blockBytes()
}

func (l Layout) blockBytes() uint64 { return GOBBytes << (l.BlockW + l.BlockH + l.BlockD) }

// Offset is the byte at which (x, y, z) lies, x in bytes. The place may lie in
// the padding of the last block.
func (l Layout) Offset(x, y, z uint32) uint64 {
	nx, ny, _ := l.blocks()
	bx, by, bz := uint64(x/GOBWidth>>l.BlockW), uint64(y/GOBHeight>>l.BlockH), uint64(z>>l.BlockD)
	block := (bz*ny+by)*nx + bx

	gx := uint64(x/GOBWidth) & (1<<l.BlockW - 1)
	gy := uint64(y/GOBHeight) & (1<<l.BlockH - 1)
	gz := uint64(z) & (1<<l.BlockD - 1)
	gob := (gz<<l.BlockH+gy)<<l.BlockW + gx

	return block*l.blockBytes() + gob*GOBBytes + uint64(inGOB(x%GOBWidth, y%GOBHeight))
}

// inGOB is the order of the bytes in a GOB: 16-byte columns, two lines of them
// together, then the second half of 32 bytes, and so on.
func inGOB(x, y uint32) uint32 {
	return (x&32)<<3 | (y&6)<<5 | (x&16)<<1 | (y&1)<<4 | x&15
}

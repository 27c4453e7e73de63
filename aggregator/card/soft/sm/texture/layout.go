package texture

import "fmt"

const (
	addressMask = 1<<40 - 1
	maxLevels   = 16
)

// A GOB is 64 bytes by 8 lines, and lies together as 32 sectors of 16 bytes.
const (
	GOBWidth  = 64
	GOBHeight = 8
	GOBBytes  = GOBWidth * GOBHeight
)

// Image is where texels lie. Sizes are in texels; those of a level halve.
type Image struct {
	Address uint64
	Texel   uint64 // bytes
	Size    [3]uint64
	// Layers are those of an array, and the faces of cubes. An image of three dimensions has one.
	Layers  uint64
	Pitched bool
	Pitch   uint64
	// High and Deep are log2 of a block's GOBs. Levels that are smaller have smaller blocks.
	High, Deep uint64
	Last       uint64 // level
	stride     uint64 // of layers
	levels     [maxLevels]level
}

type level struct {
	offset     uint64
	high, deep uint64
	wide, rows uint64 // blocks
}

// image returns what a header describes.
func (h *Header) image(f *texelFormat) (im Image, err error) {
	im = Image{
		Address: uint64(h.High)<<32 | uint64(h.Low), Texel: f.bytes, Size: [3]uint64{uint64(h.Width), uint64(h.Height), 1}, Layers: 1,
		Pitched: h.Pitched != 0, Pitch: uint64(h.Pitch), High: uint64(h.BlockHeight), Deep: uint64(h.BlockDepth), Last: uint64(h.LastLevel),
	}
	if h.Height == 0 {
		im.Size[1] = 1 << 16
	}
	switch h.Target {
	case oneD, buffer:
		im.Size[1] = 1
	case oneDArray:
		im.Size[1], im.Layers = 1, uint64(h.Depth)
	case twoDArray:
		im.Layers = uint64(h.Depth)
	case cube:
		im.Layers = 6
	case cubeArray:
		im.Layers = 6 * uint64(h.Depth)
	case threeD:
		im.Size[2] = uint64(h.Depth)
	case twoD, twoDNoMipmap:
	default:
		return im, fmt.Errorf("textures of type %d", h.Target)
	}
	switch {
	case h.Samples != 0:
		return im, fmt.Errorf("multisampled textures (mode %d)", h.Samples)
	case (h.Target == cube || h.Target == cubeArray) && im.Size[0] != im.Size[1]:
		return im, fmt.Errorf("cubes of %d by %d texels", im.Size[0], im.Size[1])
	case h.Target == buffer && h.Pitched == 0:
		return im, fmt.Errorf("buffer textures in blocks")
	case h.Target == buffer:
		im.Pitch = 0 // there is one line
	case h.Pitched != 0 && (im.Size[2] > 1 || im.Layers > 1 || im.Last > 0):
		return im, fmt.Errorf("pitched textures of several layers or levels")
	case im.High > 5 || im.Deep > 5:
		return im, fmt.Errorf("textures in blocks of %d by %d GOBs", 1<<im.High, 1<<im.Deep)
	}
	im.lay()
	return im, nil
}

// at returns the size of a level in a dimension.
func (im *Image) at(level, dim int) uint64 { return max(1, im.Size[dim]>>level) }

// lay finds the offsets of the levels: they follow each other, and so do layers, in whole
// blocks of the first level.
func (im *Image) lay() {
	var offset uint64
	for i := range min(int(im.Last)+1, maxLevels) {
		l := &im.levels[i]
		l.offset, l.high, l.deep = offset, im.High, im.Deep
		for l.high > 0 && GOBHeight<<(l.high-1) >= im.at(i, 1) {
			l.high--
		}
		for l.deep > 0 && 1<<(l.deep-1) >= im.at(i, 2) {
			l.deep--
		}
		l.wide = blocks(im.at(i, 0)*im.Texel, GOBWidth)
		l.rows = blocks(im.at(i, 1), GOBHeight<<l.high)
		offset += l.wide * l.rows * blocks(im.at(i, 2), 1<<l.deep) * GOBBytes << (l.high + l.deep)
	}
	first := uint64(GOBBytes) << (im.levels[0].high + im.levels[0].deep)
	im.stride = blocks(offset, first) * first
}

func blocks(n, size uint64) uint64 { return (n + size - 1) / size }

// At returns the address of a texel, which must be inside of the level and the layers.
func (im *Image) At(level int, x, y, z, layer uint64) uint64 {
	x *= im.Texel
	if im.Pitched {
		return (im.Address + y*im.Pitch + x) & addressMask
	}
	l := &im.levels[level]
	block := ((z>>l.deep)*l.rows+y/(GOBHeight<<l.high))*l.wide + x/GOBWidth
	gob := (z&(1<<l.deep-1))<<l.high + y/GOBHeight&(1<<l.high-1)
	return (im.Address + layer*im.stride + l.offset + block*GOBBytes<<(l.high+l.deep) + gob*GOBBytes + InGOB(x, y)) & addressMask
}

// InGOB is the place of byte x of line y in its GOB: sectors lie in pairs of lines.
func InGOB(x, y uint64) uint64 {
	return x&32<<3 | y&6<<5 | x&16<<1 | y&1<<4 | x&15
}

package texture

import (
	"encoding/binary"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
)

// Words are the words of a descriptor.
type Words [sm.DescriptorSize / 4]uint32

func wordsOf(b []byte) (w Words) {
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// bits is a place in a descriptor.
type bits struct{ word, low, width uint8 }

func (b bits) get(w *Words) uint32 { return uint32(uint64(w[b.word]) >> b.low & (1<<b.width - 1)) }

func (b bits) put(w *Words, v uint32) {
	mask := uint32(uint64(1)<<b.width-1) << b.low
	w[b.word] = w[b.word]&^mask | v<<b.low&mask
}

// A field is a row of a descriptor: its name, its bits, and where T keeps it. A field that
// nothing keeps concerns speed or quality only, or must be zero.
type field[T any] struct {
	name string
	bits
	keep     func(*T) *uint32
	mustZero bool
}

// Header is an image, as its descriptor says.
type Header struct {
	Format        uint32
	Types         [4]uint32 // of stored components
	Sources       [4]uint32 // of X, Y, Z and W
	Low, High     uint32    // address
	SRGB          uint32
	Target        uint32
	Pitched       uint32
	BlockHeight   uint32 // log2 of GOBs
	BlockDepth    uint32
	Normalized    uint32
	Pitch         uint32
	Width, Height uint32
	Depth         uint32
	LastLevel     uint32 // of the image in memory
	MinLevel      uint32 // of those that programs see
	MaxLevel      uint32
	Samples       uint32 // mode, see multisample
	Bias          uint32 // signed, in 1/256
}

// headerFields are the rows of an image's descriptor.
var headerFields = []field[Header]{
	{"COMPONENTS_SIZES", bits{0, 0, 6}, func(h *Header) *uint32 { return &h.Format }, false},
	{"R_DATA_TYPE", bits{0, 6, 3}, func(h *Header) *uint32 { return &h.Types[0] }, false},
	{"G_DATA_TYPE", bits{0, 9, 3}, func(h *Header) *uint32 { return &h.Types[1] }, false},
	{"B_DATA_TYPE", bits{0, 12, 3}, func(h *Header) *uint32 { return &h.Types[2] }, false},
	{"A_DATA_TYPE", bits{0, 15, 3}, func(h *Header) *uint32 { return &h.Types[3] }, false},
	{"X_SOURCE", bits{0, 18, 3}, func(h *Header) *uint32 { return &h.Sources[0] }, false},
	{"Y_SOURCE", bits{0, 21, 3}, func(h *Header) *uint32 { return &h.Sources[1] }, false},
	{"Z_SOURCE", bits{0, 24, 3}, func(h *Header) *uint32 { return &h.Sources[2] }, false},
	{"W_SOURCE", bits{0, 27, 3}, func(h *Header) *uint32 { return &h.Sources[3] }, false},
	{"PACK_COMPONENTS", bits{0, 30, 1}, nil, true},
	{"OFFSET_LOWER", bits{1, 0, 32}, func(h *Header) *uint32 { return &h.Low }, false},
	{"OFFSET_UPPER", bits{2, 0, 8}, func(h *Header) *uint32 { return &h.High }, false},
	{"S_R_G_B_CONVERSION", bits{2, 10, 1}, func(h *Header) *uint32 { return &h.SRGB }, false},
	{"TEXTURE_TYPE", bits{2, 14, 4}, func(h *Header) *uint32 { return &h.Target }, false},
	{"LAYOUT", bits{2, 18, 1}, func(h *Header) *uint32 { return &h.Pitched }, false},
	{"GOBS_PER_BLOCK_WIDTH", bits{2, 19, 3}, nil, true},
	{"GOBS_PER_BLOCK_HEIGHT", bits{2, 22, 3}, func(h *Header) *uint32 { return &h.BlockHeight }, false},
	{"GOBS_PER_BLOCK_DEPTH", bits{2, 25, 3}, func(h *Header) *uint32 { return &h.BlockDepth }, false},
	{"NORMALIZED_COORDS", bits{2, 31, 1}, func(h *Header) *uint32 { return &h.Normalized }, false},
	{"PITCH", bits{3, 0, 20}, func(h *Header) *uint32 { return &h.Pitch }, false},
	{"WIDTH", bits{4, 0, 30}, func(h *Header) *uint32 { return &h.Width }, false},
	{"HEIGHT", bits{5, 0, 16}, func(h *Header) *uint32 { return &h.Height }, false},
	{"DEPTH", bits{5, 16, 12}, func(h *Header) *uint32 { return &h.Depth }, false},
	{"MAX_MIP_LEVEL", bits{5, 28, 4}, func(h *Header) *uint32 { return &h.LastLevel }, false},
	{"MIP_LOD_BIAS", bits{6, 5, 13}, func(h *Header) *uint32 { return &h.Bias }, false},
	{"RES_VIEW_MIN_MIP_LEVEL", bits{7, 0, 4}, func(h *Header) *uint32 { return &h.MinLevel }, false},
	{"RES_VIEW_MAX_MIP_LEVEL", bits{7, 4, 4}, func(h *Header) *uint32 { return &h.MaxLevel }, false},
	{"MULTI_SAMPLE_COUNT", bits{7, 12, 4}, func(h *Header) *uint32 { return &h.Samples }, false},
}

// Sampler is how an image is filtered.
type Sampler struct {
	Wrap             [3]uint32
	Compare          uint32 // depth, with Func
	Func             uint32
	Anisotropy       uint32
	Mag, Min, Mip    uint32
	Bias             uint32 // signed, in 1/256
	MinLevel         uint32 // in 1/256
	MaxLevel         uint32
	Border           [4]uint32
	SRGBBorder       [3]uint32
	ConvertsFromSRGB uint32
}

// samplerFields are the rows of a sampler's descriptor.
var samplerFields = []field[Sampler]{
	{"ADDRESS_U", bits{0, 0, 3}, func(s *Sampler) *uint32 { return &s.Wrap[0] }, false},
	{"ADDRESS_V", bits{0, 3, 3}, func(s *Sampler) *uint32 { return &s.Wrap[1] }, false},
	{"ADDRESS_P", bits{0, 6, 3}, func(s *Sampler) *uint32 { return &s.Wrap[2] }, false},
	{"DEPTH_COMPARE", bits{0, 9, 1}, func(s *Sampler) *uint32 { return &s.Compare }, false},
	{"DEPTH_COMPARE_FUNC", bits{0, 10, 3}, func(s *Sampler) *uint32 { return &s.Func }, false},
	{"S_R_G_B_CONVERSION", bits{0, 13, 1}, func(s *Sampler) *uint32 { return &s.ConvertsFromSRGB }, false},
	{"MAX_ANISOTROPY", bits{0, 20, 3}, func(s *Sampler) *uint32 { return &s.Anisotropy }, false},
	{"MAG_FILTER", bits{1, 0, 2}, func(s *Sampler) *uint32 { return &s.Mag }, false},
	{"MIN_FILTER", bits{1, 4, 2}, func(s *Sampler) *uint32 { return &s.Min }, false},
	{"MIP_FILTER", bits{1, 6, 2}, func(s *Sampler) *uint32 { return &s.Mip }, false},
	{"MIP_LOD_BIAS", bits{1, 12, 13}, func(s *Sampler) *uint32 { return &s.Bias }, false},
	{"MIN_LOD_CLAMP", bits{2, 0, 12}, func(s *Sampler) *uint32 { return &s.MinLevel }, false},
	{"MAX_LOD_CLAMP", bits{2, 12, 12}, func(s *Sampler) *uint32 { return &s.MaxLevel }, false},
	{"S_R_G_B_BORDER_COLOR_R", bits{2, 24, 8}, func(s *Sampler) *uint32 { return &s.SRGBBorder[0] }, false},
	{"S_R_G_B_BORDER_COLOR_G", bits{3, 12, 8}, func(s *Sampler) *uint32 { return &s.SRGBBorder[1] }, false},
	{"S_R_G_B_BORDER_COLOR_B", bits{3, 20, 8}, func(s *Sampler) *uint32 { return &s.SRGBBorder[2] }, false},
	{"BORDER_COLOR_R", bits{4, 0, 32}, func(s *Sampler) *uint32 { return &s.Border[0] }, false},
	{"BORDER_COLOR_G", bits{5, 0, 32}, func(s *Sampler) *uint32 { return &s.Border[1] }, false},
	{"BORDER_COLOR_B", bits{6, 0, 32}, func(s *Sampler) *uint32 { return &s.Border[2] }, false},
	{"BORDER_COLOR_A", bits{7, 0, 32}, func(s *Sampler) *uint32 { return &s.Border[3] }, false},
}

// decode reads a descriptor.
func decode[T any](rows []field[T], w *Words, t *T) error {
	for i := range rows {
		switch r := &rows[i]; {
		case r.keep != nil:
			*r.keep(t) = r.get(w)
		case r.mustZero && r.get(w) != 0:
			return fmt.Errorf("%s %d of a texture", r.name, r.get(w))
		}
	}
	return nil
}

// encode is the reverse.
func encode[T any](rows []field[T], t *T) (w Words) {
	for i := range rows {
		if r := &rows[i]; r.keep != nil {
			r.put(&w, *r.keep(t))
		}
	}
	return w
}

// Images by TEXTURE_TYPE.
const (
	oneD = iota
	twoD
	threeD
	cube
	oneDArray
	twoDArray
	buffer
	twoDNoMipmap
	cubeArray
)

// fixed is a signed number of 13 bits, in 1/256.
func fixed(v uint32) int { return int(int32(v<<19) >> 19) }

// Package texture is the texture unit: it executes the texture instructions of a warp.
//
// A [Unit] reads the descriptors that an instruction names, in the layout of
// NVIDIA's cl9097tex.h (envytools: rnndb/graph/g80_texture.xml): a [Header] says where an image
// lies and what its texels are, a [Sampler] how it is filtered. Rows list the fields of both, and
// the formats. Then it turns coordinates into texels, texels into addresses ([Image.At])
// and bytes into colours.
//
// Weights of a linear filter have 8 bits of fraction, as the hardware's. Levels of detail are
// multiples of 1/256.
//
// Block-compressed formats, multisampled images and anisotropic filters are not implemented, nor
// are derivatives of three coordinates (Mesa's compiler uses none), gathers from one or three
// dimensions and fetches from cubes (GLSL has none): the instruction fails, and names what is
// missing. So does an instruction that names a descriptor that is not bound. Texels outside of an
// image are never read: what a descriptor says of an image's size bounds all addresses.
//
// The package runs no goroutines and takes no locks. A Unit belongs to one goroutine.
package texture

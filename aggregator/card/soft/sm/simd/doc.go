// Package simd executes thread blocks of sm_20 programs fast. It is the twin of package interp: the
// state is interp's, and after any number of instructions it is the same, bit for bit.
//
// An instruction is decoded once, into an operation on rows: a row is one register of the 32 lanes of
// a warp. The operations on rows are plain Go. Built with GOEXPERIMENT=simd they have twins that give
// the same bits, for processors that have AVX2 and FMA. An instruction that has no operation on rows,
// and each one that goes wrong, is left to interp on the same state, lane by lane.
//
// An [Executor] keeps slices of memory until Begin: its owner calls that whenever the address space
// may have changed.
//
// The package has no locks and no goroutines. An Executor belongs to one goroutine.
package simd

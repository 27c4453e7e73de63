// Package random makes OpenCL kernels whose results are the same on every device: all operations
// are exact or rounded once, no order of threads matters, and nothing is undefined. Kernels branch, loop
// and exchange data between threads.
//
// What Mesa's compiler for nouveau gets wrong is left out: vectors and selections of 8 and 16 bits,
// popcount, mul_hi and mad_hi of 64 bits, fma with a constant, and shifts of 64 bits by 64 and more:
// OpenCL wraps the amount, and the compiler removes a mask of 63. So are the smaller and the larger of
// numbers of 64 bits: with a constant, the compiler swaps the operands of one of the two instructions.
//
// Loops load nothing: Mesa's renderer keeps a loaded value for use behind the loop, where threads that
// left the loop early then have zero.
//
// The package owns no state.
package random

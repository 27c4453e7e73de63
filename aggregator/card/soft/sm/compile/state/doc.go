// Package state is what a block of a launch has reached, as plain data in one piece of memory, which
// processes may share: a [Block], its warps, and its shared memory. Compiled code runs on it as it is.
// [Image.Put] and [Image.Get] convert it from and to interp's form. Get believes nothing: the process that
// wrote the memory may be compromised.
//
// The package has no locks or goroutines. Several threads may use one [Work] at a time, but an Image belongs
// to one.
package state

// Package fermi is the front end of package compile for GF100's instruction set: what each form of package
// isa does, in calls of a compile.Builder. The meaning is that of package interp, bit for bit.
//
// A form without a meaning here is left to another executor. The package has no locks or goroutines.
package fermi

// Package engine runs blocks of programs as machine code: it compiles a launch, and moves warps between
// interp's state and the context of the compiled function.
//
// What the function leaves, package interp executes: the instruction at the place where it stopped. A
// [Code] belongs to one goroutine. The package starts no others.
package engine

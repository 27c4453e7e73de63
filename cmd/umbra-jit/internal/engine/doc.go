// Package engine runs blocks of launches as machine code: [New] compiles a program, and a [Runner] runs
// blocks of a launch of it, whose state is a state.Image.
//
// What the code leaves, package interp executes, here by [Runner.Interpret] or wherever the image goes. A
// Runner belongs to one goroutine; [Code] and [Support] do not change. The package starts no goroutines.
package engine

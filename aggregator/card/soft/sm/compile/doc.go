// Package compile translates programs of shader processors to LLVM IR. A warp is 32 lanes of a vector.
//
// A [FrontEnd] knows one instruction set: it decodes, and says what an instruction does by calls of a
// [Builder]. All else is here. A program becomes blocks; a block is a program counter, the control stack
// as far as it is known (kinds and targets of its entries), and whether all lanes run. The same calls of
// the Builder serve the analysis and the emission: the analysis repeats the blocks until what is known
// about each register at their starts no longer changes, the emission writes their text.
//
// What is known of a value is its [Kind]: the same in all lanes, base + lane*stride, or any; the range; and
// whether a NaN has its bits yet.
//
// The result is one function on a [Context] and a state.Warp, which are plain data: it runs the warp until its
// budget is spent, or until it meets something that it leaves to another executor. [Support] has what runs
// warps and blocks by turns, for all programs. Code never reads or writes memory but that of the context, of
// the block's state, and of the pages in the context's table.
//
// Constants at fixed places are read where they are used, but for small ones: those are read when the function
// starts. So a program that changes its own constants may see the old ones for a turn.
//
// CompileKernel makes a [Kernel] of the same program: the function of one thread, for a GPU. The front end, the
// analysis and the calls of the Builder are the same.
//
// The package has no locks or goroutines.
package compile

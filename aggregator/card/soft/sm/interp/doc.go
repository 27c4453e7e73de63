// Package interp executes thread blocks of sm_20 programs. It is the oracle that faster executors
// are held against: one plain function for each operation, lane by lane, in the order of the
// rules and not of speed.
//
// A [Block] is one thread block: warps of 32 lanes, shared memory, barriers. It is plain data;
// Step runs a bounded number of warp instructions and returns, so an owner can stop, charge or
// drop a block at any time. Warps run in turns of one instruction each.
//
// What a program does wrong ends the block with a [Fault], which names the instruction. So does
// an operation, special register or modifier that is defined and not implemented: none of them
// yields a made-up value.
//
// The package runs no goroutines and takes no locks. A Block belongs to one goroutine; a
// [Program] may be shared by blocks of one goroutine.
package interp

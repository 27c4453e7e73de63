// Package engine executes the methods of a software GF100: what happens when a
// channel's PBDMA delivers a method to an object.
//
// There are two kinds of engine. The graphics engine ([GR]) holds one object each of M2MF
// (9039), 2D (902d), 3D (9097) and compute (90c0) per channel; a copy engine ([CE]) holds
// one object with the methods of nouveau's microcode. A context is one channel's state on
// one engine. It is plain data: numbers and arrays of numbers, no pointer into memory, no
// closure, so it can be copied, frozen and written out between any two calls. Each call
// passes the card's services in [Env]; an engine never keeps them.
//
// The engines of a GH100 have a context of their own ([Hopper]): inline data of a140, cb97 and
// cbc0, report semaphores, and copies of c8b5 are carried out. Other methods are stored, and those
// that would draw or launch are refused by name, because no program of SM90 can be executed.
//
// # The rules of a call
//
//   - Method takes one method write. Done: it is carried out. Illegal: nothing
//     changed, and Refusal says why.
//   - Busy and Faulted also mean that the method is taken, but work is left:
//     call Step until it says Done. Each call moves at most [Budget] bytes, so
//     the channel can be stopped, frozen or preempted between two calls.
//   - After Faulted, Fault says where. Step tries again from where it stopped,
//     Abort gives the work up.
//   - While work is left, Method takes nothing: it answers Busy again. See
//     Idle.
//
// # What is executed
//
// M2MF, both copy engines, constant-buffer updates, report semaphores, macros, launches of
// programs, clears of colour targets and blits without scaling are executed. Every other method
// of 9097, 90c0 and 902d is stored; a method that would draw, or clear or blit otherwise is
// stored too, and counted by name in [Stats] as not executed.
//
// SET_RENDER_ENABLE switches launches, clears and blits of its class off, also as reports in memory say.
//
// A program that does what it must not ends its launch: the LAUNCH is refused, and Env gets
// the reason in words.
//
// # Addresses
//
// A virtual address has 40 bits, and 57 with Env.Last of a GH100. All address arithmetic is
// modulo that, as in an adder of as many bits; a transfer that passes the end continues at 0. A program's
// addresses have more bits: one beyond the end ends its launch.
//
// # Overlap
//
// The bytes of a copy are moved in an unspecified order: when source and
// destination overlap in memory the overlapping part ends up with source bytes
// from before or during the copy. Exceptions: a copy onto exactly itself changes
// nothing. No byte outside the destination is ever written.
//
// A copy that faults may have copied bytes after its reported position; Step copies them
// again.
//
// # Ownership
//
// A context belongs to its caller, which serialises calls. [Stats] is atomic and
// may be shared by any number of contexts.
//
// The thread blocks of a launch are executed by [Processors]. If there are several, each is a
// goroutine: a step starts them and waits for their end. gridStep.mu guards what they share: the
// grid's count, and Env, whose Mem and Clock are called under it. What was found in Mem once is in
// [Pages], which are read without a lock. A lock makes reductions of semaphores atomic; it is taken
// last, for a moment. The package has no other locks and goroutines, and allocates
// nothing in Method, Inline or Step but for programs.
package engine

//go:generate go run ../../../../tools/classgen/main.go $OPEN_GPU_DOC_CLASSES classes

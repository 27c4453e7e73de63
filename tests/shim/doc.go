// Package shim runs programs on the software card without a virtual machine and without a
// kernel module. Debian's unmodified Mesa believes that it talks to nouveau: Mesa's own noop
// shim answers for the device, and preload/shim.c, in front of it, passes the requests that matter to
// a [Server]. That has a [Kernel] for each process: buffers, page tables and a channel on a
// software card of its own. Buffers are shared memory of the program, the server and the card.
//
// A [Recording] is what a program submitted, and what the card made of it. It replays on a
// card alone, without Mesa, and [Show] explains it.
//
// Piglit's OpenCL and compute tests run so too, see [PiglitReasons] for those that cannot pass, and
// programs/gl compares textures and images with Mesa's renderer.
//
// A [Comparison] times programs on the card, on Mesa's renderer and on PoCL, with [Workloads] of some size.
//
// A [Profile] counts what programs execute, block by block.
//
// What is not tested so: registers, interrupts and the driver of a real kernel.
//
// A [Machine] has no goroutine of its own besides those of the card and its driver. A Server
// has one for each connection. A Machine belongs to one goroutine.
package shim

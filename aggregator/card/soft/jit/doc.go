// Package jit runs programs of the software card as machine code, in one process for each owner of channels: the
// command umbra-jit, which compiles them by libLLVM. This package is the server's side, and the protocol.
//
// A [Compiler] belongs to a card, and has a [Guest] for each owner. A launch begins in the server. When its program is
// worth it, the process compiles it in the background, and then runs it a step at a time: the server sends [Run], and
// waits for [Ended]. In between the process asks for pages of the address space ([Ask]), which the server names as places in
// files ([Give]). The blocks' states and the count of blocks lie in memory that both share. Whatever the process leaves, the
// server's executor goes on with.
//
// The server believes nothing that the process writes, and waits for it for a limited time: of the processor, for on a busy
// machine a process may get none for long, or longer if it does not use one. A process that ends, hangs, or
// answers nonsense is killed, and another one is started later. If it had not run anything in the step, its launch goes on in
// the server. Otherwise the launch ends with a fault: nobody knows which of its stores were carried out, and to repeat the
// step would carry out some of them twice, which atomics and changes in place show.
//
// Guest.Run is called by one goroutine at a time, that of a step. Each process has three goroutines of the server: one starts
// it and waits for its first message, and one waits for its end. Guest.mu guards what they share with Compiler's methods.
package jit

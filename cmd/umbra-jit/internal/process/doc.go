// Package process is umbra-jit once it has its library: it compiles one guest's programs and runs them over memory that it
// shares with the server, as package jit says.
//
// One goroutine receives the server's requests, and runs the blocks of one slot. Each other slot has one of the crew, which
// sleeps between its turns; they take memory.mu to ask the server for pages. One goroutine compiles, one program at a time;
// programs.mu guards what it and the first one share. Locks: programs.mu is taken alone.
package process

// Package llvm makes machine code of LLVM IR by the C library libLLVM 19, loaded at run time.
//
// A [Library] is loaded once for a process and is never unloaded. A [Compiler] has a context of LLVM of
// its own and belongs to one goroutine. Errors of IR come back as Go errors; an internal error of LLVM
// ends the process, so only a process that can be restarted loads it.
package llvm

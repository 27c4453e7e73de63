package vfiouser

import (
	"runtime"
	"runtime/debug"
)

// setPanicOnFault makes a fault at an address outside the Go heap a panic of this goroutine
// instead of the end of the process, and returns what was set before.
func setPanicOnFault() bool { return debug.SetPanicOnFault(true) }

// catchFault is deferred around accesses to client memory: it turns a fault into ErrFault,
// passes other panics on, and restores what setPanicOnFault returned.
func catchFault(before bool, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	if e, ok := p.(runtime.Error); ok {
		if _, isFault := e.(interface{ Addr() uintptr }); isFault {
			*err = ErrFault
			return
		}
	}
	panic(p)
}

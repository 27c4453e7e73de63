// Package fault turns a panic of the server, at work for one guest, into the quarantine of that
// guest. Its neighbours and the process go on.
//
// A goroutine that serves one guest defers [Contain] before it takes locks, and releases by defer the
// locks under which it calls anything. So the quarantine can take them.
package fault

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// Owner is the guest that is served.
type Owner interface {
	// Quarantine stops the guest's channels. It is called without a lock.
	Quarantine(reason string)
}

// Contain is deferred by what serves one guest. where names it for the operator.
func Contain(owner Owner, where string) {
	if p := recover(); p != nil {
		owner.Quarantine(Reason(where, p))
	}
}

// Reason describes a panic that was recovered in a deferred function, with its place in the source.
func Reason(where string, p any) string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	place := "an unknown place"
	for panicking := false; ; {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicking && !inRuntime {
			place = fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
			break
		}
		panicking = panicking || inRuntime
		if !more {
			break
		}
	}
	return fmt.Sprintf("the server failed in %s: %v, at %s", where, p, place)
}

package serve

import (
	"runtime"
	"sync"
)

// Each GPU is served by a thread of its own, which runs when a message arrives. Go lets as many
// threads run as the machine has processors, so one that returns from the kernel would first wait
// until another goroutine makes room for it. With room for each, the kernel alone decides who
// runs: 32 guests copy 1.4 times as much on two cores.

// processors guards the process's number of threads that may run.
var processors sync.Mutex

// addProcessors changes how many threads may run at once.
func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

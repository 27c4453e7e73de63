//go:build race

package simulate

// oneSweep leaves out all sweeps but one. The race detector has nothing to find there: there
// is one goroutine.
const oneSweep = true

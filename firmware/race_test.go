//go:build race

package firmware_test

// every so many bytes one is tried with other values. The race detector has nothing to
// find there: there is one goroutine.
const every = 11

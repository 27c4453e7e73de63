//go:build race

package gate

// flips is how many entries are to be held back and let go: under the race detector
// as many as find each order of two goroutines many times over.
const flips = 4_000

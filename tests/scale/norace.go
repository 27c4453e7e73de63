//go:build !race

package scale

// Race reports whether the race detector is on. It allocates, so allocations
// cannot be counted then.
const Race = false

//go:build !race

package gate

// flips is how many entries are to be held back and let go.
const flips = 20_000

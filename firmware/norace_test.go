//go:build !race

package firmware_test

// every so many bytes one is tried with other values.
const every = 1

//go:build !race

package simulate

const oneSweep = false

//go:build !amd64

package lab

// tscKHz is unknown: TCG counts otherwise on this machine.
func tscKHz() int { return 0 }

// Package devmodel has what the virtual GPUs of all chips share. Those of one chip are in the packages gf100
// and gh100, and drivers for them in package guest.
package devmodel

import "github.com/umbra-gpu/umbra/mmio"

// BARs of a virtual GPU.
const (
	BAR0 = 0 // registers
	BAR1 = 1 // memory through page tables
	BAR3 = 3 // memory through page tables
)

// Host receives a virtual GPU's interrupt. Interrupt must not block and must not call back.
type Host interface {
	Interrupt(mmio.Line)
}

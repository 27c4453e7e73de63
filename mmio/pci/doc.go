// Package pci is the PCI function of a chip: its configuration space with the capabilities for
// power, messages and PCI Express, and the state of its interrupt as the host knows it.
//
// The package has no locks and no goroutines: the lock of the owner guards everything.
package pci

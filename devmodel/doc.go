// Package devmodel has what the virtual GPUs of all chips share: a PCI function with its registers, its
// windows on memory, and its interrupt. Those of one chip are in the packages gf100 and gh100, and drivers
// for them in package guest.
//
// # Locks and goroutines
//
// Function.Mu guards everything that a guest can see. Every access runs under it, and so do the calls into
// the card, which never wait. Events from the card take it too. Host.Interrupt is called under it and must
// not call back. The package starts no goroutines.
package devmodel

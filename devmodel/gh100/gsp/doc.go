// Package gsp is the GSP of a GH100 as its driver sees it: two message queues in the guest's memory,
// and the remote procedure calls that go through them. No firmware runs; the calls are answered here.
//
// Everything is a state machine over the guest's bytes. Each message is copied once, then checked, and
// only the copy is used. What a guest can make the package keep is bounded: by [MaxCall] for a call,
// by maxPending for replies that it does not take.
//
// The package has no locks and no goroutines: calls of one GSP come from one goroutine at a time.
//
// Sources: NVIDIA's open-gpu-kernel-modules 570.144 for structures and numbers, nouveau's rm/r535 and
// rm/r570 for what a driver does with them.
package gsp

// Package gsp is the GSP of a GH100 as its driver sees it: two message queues in the guest's memory,
// and the remote procedure calls that go through them. No firmware runs; the calls are answered here.
//
// Everything is a state machine over the guest's bytes. Each message is copied once, then checked, and
// only the copy is used. What a guest can make the package keep is bounded: by [MaxCall] for a call,
// by maxPending for replies that it does not take, by [Config] for objects.
//
// Calls, controls and classes are tables; what is in none is refused, counted and logged once. Where the
// members of their structures lie is a table for each release of the firmware. Objects form a tree of
// clients, devices, address spaces and channels. What they mean for a card the [Host] carries out: it
// gets spaces by their page directory and channels by a description, all inside of the guest's memory.
//
// The package has no locks and no goroutines: calls of one GSP come from one goroutine at a time.
//
// Sources: NVIDIA's open-gpu-kernel-modules 570.144 for structures and numbers, nouveau's rm/r535 and
// rm/r570 for what a driver does with them.
package gsp

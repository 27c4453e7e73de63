// Package gpu is the work that a guest gives the GPU, and the proof that the GPU
// did it: copies of every kind, semaphores, fences, evictions, moves, offences,
// load, and bandwidth.
//
// Nothing here trusts the engines. A destination holds the complement of what is to
// come before each copy, its guard bands hold random bytes, and all of it is compared
// afterwards by the CPU; so an engine that does nothing fails every check.
//
// The package works on the small interfaces of device.go, which package drm satisfies in
// a guest and an interpreter satisfies in the tests. It holds no lock; a Load and a
// Throttle own one goroutine a client, all of which Stop waits for. Nothing else starts
// goroutines.
package gpu

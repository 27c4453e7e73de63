// Package gpu is the work that a guest gives the GPU, and the proof that the GPU
// did it: copies of every kind, fences, moves, offences and load.
//
// Nothing here trusts the engines. A destination holds the complement of the expected
// data before each copy, its guard bands hold random bytes, and all of it is compared
// afterwards by the CPU; so an engine that does nothing fails every check.
//
// Its tests are the end-to-end tests, which compare it with the card's counts. In the demonstration
// on a card whose engines do nothing, every check of data must fail.
//
// A Load owns one goroutine for each client, which Stop waits for. Nothing
// else starts goroutines that outlive a call.
package gpu

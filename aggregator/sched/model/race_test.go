//go:build race

package model_test

// pace shortens what takes long under the race detector, which has nothing to find
// here: there is one goroutine.
const pace = 8

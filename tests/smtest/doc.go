// Package smtest makes programs and memory for the tests of executors.
//
// The package has no locks or goroutines.
package smtest

// Package arch holds the repository to its layout: which package may import
// which, where unsafe may stand, what a package must say of itself, and what no
// tracked file may contain.
//
// The rules are tables (rooms.go, text.go); the checks are pure functions over
// what was read of the source, so that the tests can plant violations and see
// each of them reported.
package arch

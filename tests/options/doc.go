// Package options lists every way in which a card can be shared: each value of
// each option that says how a guest's tables, windows, doorbells and turns are
// dealt with, and all of their combinations that are possible.
//
// [Axes] is the one place where they stand. What is possible is asked of package
// config, which refuses the rest. [All] is the product, [Pairs] a few of it in which
// every two values that go together do. A [Combination] makes what umbra serve would
// make of it.
//
// The package's own tests run the data suite under all of them. It has no state,
// locks or goroutines.
package options

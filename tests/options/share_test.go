package options

// share says with how many of the combinations tests go that go with all: one in so
// many. Under the race detector, which looks for races, not for options, it is few; it
// has no divisor that the options' numbers of values have.
var share = 1

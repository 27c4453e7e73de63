package isolation

// share says which part of the cases runs: one in so many. Under the race
// detector, which makes everything several times slower and looks for races, not
// for holes, it is a quarter.
var share = 1

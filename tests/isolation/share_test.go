package isolation

// share says which part of the cases runs: one in so many. Under the race
// detector, which makes everything several times slower and looks for races, not
// for holes, it is a quarter.
var share = 1

// offsets says with how many of the offsets of BAR0 TestGateOffsets goes: one in so many.
// Those that mean something are registers, which TestGateRegisters goes through.
var offsets uint64 = 1

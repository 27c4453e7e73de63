// Package doorbell finds the doorbells that nobody traps.
//
// A driver submits work by a store to GP_PUT in its channel's page of the poll
// area. Where a guest's machine has mapped that page, the store is seen by nobody:
// somebody has to look. A [Poller] does, for a whole card: it calls its owner's
// [Doors], which look at the pages of the channels that can be rung, and ring those
// that were.
//
// # How often
//
// Not in a loop: on a machine with few processors a poller that spins takes the
// guest's own. It looks every Pace.Fast after a ring, and then ever less: it waits an
// eighth of the time since the last one, so that work which comes once in a
// millisecond is found within 125 us, and no more than Pace.Slow, which is the bound
// for work that nobody expected. While no channel can be rung it sleeps without a
// timer. A look that takes long is paid for by a longer wait: no guest can make the
// poller take more than a quarter of a processor.
//
// # Goroutines and locks
//
// One goroutine per Poller, from New to Close. While it waits for less than a
// millisecond it has an OS thread of its own, whose timers are exact. It holds no lock
// when it calls Doors. The Poller has none of its own.
package doorbell

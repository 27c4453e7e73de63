// Package rm makes a [card.GPU] of a GPU that the host's NVIDIA driver has. Each guest has a process with a
// client of that driver, behind a [worker.Worker]: the hardware and the driver separate the guests, and a process that
// dies ends the channels of its guest alone.
//
// Guests' rings are copied: the server puts two releases with time stamps of its own around the entries of a doorbell.
// So it knows exactly what has ended, and when.
//
// # Goroutines and locks
//
// Each share has one goroutine, [share.run]. It enables, disables and resets channels, because those calls of the driver
// take long and nobody may wait for them in a trap. A worker has goroutines of its own. Locks, in the order in which they are
// taken:
//
//  1. share.changing: calls that change spaces or memory, and what they note. It is held during calls of the worker, of up to
//     some seconds. A trap never takes it.
//  2. share.delivering: the receivers of a share's events run with it. They take their own locks, and then those below.
//  3. share.mu: the list of channels, and events that wait.
//  4. channel.mu: one channel's ring. It is held while entries are copied.
//  5. space.mu, share.reading (read side): one look-up, one copy of guest's memory.
//  6. engine.mu: accounts of one engine. A leaf.
//  7. GPU.mu: numbers of shares and channels. A leaf.
package rm

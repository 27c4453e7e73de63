// Package isolation puts a hostile guest, a victim and a bystander on one card
// and watches that the first gets at nothing of the others. It is a gate: what it
// finds is a reason not to release.
//
// A [Ward] is the whole stack in one process: software card, aggregator, virtual
// GPUs, vfio-user servers, and guests behind sockets. Four things are watched:
//
//   - every access that the card makes for a channel stays in what belongs to the
//     channel's owner (the card tells of each, the aggregator's books decide);
//   - the bystander's memory, the victim's that it does not use, the page tables
//     that are kept for both, the card memory that nobody has and the
//     aggregator's own tables stay as they were, byte for byte; of the card's
//     poll area and runlists, which change, all that never does;
//   - nothing that the attacker reads, or has copied into its memory, holds a
//     word of what a former owner of its memory or one of these has;
//   - the victim goes on copying, and its copies are right.
//
// A Ward takes a planted hole, a card that does one thing wrong: the gate has to
// find it, or it is no gate.
//
// It goes with few combinations of the options that have all pairs of them, every
// case at every place with one or another; with -all-combinations every case with
// all.
//
// A Ward owns its goroutines (servers, the victim's) and ends them in Close. Its
// lock guards what was found.
package isolation

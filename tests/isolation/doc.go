// Package isolation puts a hostile guest, a victim and a bystander on one card and
// checks that the attacker reaches nothing of the others. What it finds blocks a
// release.
//
// A [Ward] is the whole stack in one process: software card, aggregator, virtual
// GPUs, vfio-user servers, and guests behind sockets. It watches four things:
//
//   - Every access of the card for a channel stays inside what belongs to the
//     channel's owner. The card reports each access, and the aggregator's tables
//     decide.
//   - Memory that nothing should write stays as it was, byte for byte: the
//     bystander's, the victim's unused memory, the page tables of both, unowned card
//     memory, the aggregator's own tables, and most of the poll area and runlists.
//   - Nothing that the attacker reads, or has copied into its memory, holds a word
//     of what others have or a former owner had.
//   - The victim goes on copying, and its copies are right.
//
// A Ward accepts a planted hole, a card that does one thing wrong. The tests check
// that the watch finds each.
//
// make test tries each case at half of the places, with combinations that have all
// pairs of options; make test-release tries all.
//
// A Ward owns its goroutines (servers, the victim's) and ends them in Close. Its
// lock guards the list of violations.
package isolation

// Package isolation puts a hostile guest, a victim and a bystander on one card and checks
// that the attacker reaches no memory of the others. A violation blocks a release.
//
// A [Ward] is the whole stack in one process: card, aggregator, virtual GPUs, vfio-user servers,
// and guests behind sockets. The card is the software one, or one of package cards. A Ward
// checks four properties:
//
//   - Every access of the card for a channel stays inside the memory of the channel's
//     owner. The card reports each access, and the aggregator's tables decide.
//   - Memory that must not be written does not change: the bystander's, the victim's unused
//     memory, the page tables of both, unowned card memory, the aggregator's own tables,
//     and most of the poll area and runlists.
//   - No data that the attacker reads, or copies to its memory, has a word of other guests'
//     or former owners' memory.
//   - The victim continues to copy, and its copies are right.
//
// A Ward accepts a planted hole, a card that does one thing wrong. The tests check that
// each is detected.
//
// make test tries each case at half of the targets, with combinations that have all pairs
// of options; make test-release tries each at all targets, with every ninth combination too.
//
// A Ward owns its goroutines (servers, the victim's) and ends them in Close. Its
// lock guards the list of violations.
package isolation

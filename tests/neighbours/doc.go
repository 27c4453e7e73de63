// Package neighbours puts guests who mind their own business on a card with one that
// makes as much work as it can: pages that thrash between windows, tables that
// storm, doorbells without work. What that costs is counted, and bounded; what the
// others feel of it is measured, against a neighbour that takes no more than a
// processor.
//
// A [Street] owns a shared card and its guests; each [Resident], and the nuisance, has
// a guest of its own, and belongs to one goroutine at a time.
package neighbours

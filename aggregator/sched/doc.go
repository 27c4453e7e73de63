// Package sched decides whose work a card does next.
//
// A card takes requests from many channels by turns, one request each, and does
// not interrupt one. So shares are made at submission: a request that its owner
// has submitted is forwarded to the card when it is the owner's turn, and time
// is charged when the card has done it. The package is told of submissions and
// completions and says what to forward. It has no clock, no goroutine and no
// lock of its own: time is an argument, and the caller holds its own lock around
// every call. No call waits; each costs the depth of the tree times the
// logarithm of its breadth, and allocates nothing.
//
// # The tree
//
// Below the card are guests, below them groups (guest processes), to any depth,
// and at the end channels. Every node has a weight, a priority and a cap among
// its siblings, and a policy by which its children take turns. Time that a
// channel used is charged to all nodes above it, for each engine on its own.
//
// # Time served
//
// Each node keeps a tag for each engine: the time it was served divided by its
// weight. Requests that are on the card are in the tag with the channel's mean
// length until they are done, and with the measured time from then on. All
// policies keep the tags, so a change of policy forgets no debt. Tags outlive
// what they were charged to: a node that is removed leaves its debt to its
// parent, and the next child takes it over.
//
// # What the caller does
//
// [Scheduler.Submit] for a doorbell, then [Scheduler.Next] until it has nothing:
// each answer is a number of entries of a channel to forward, which is how far
// GP_PUT may go on. [Scheduler.Complete] when the card has done some, and Next
// again. [Scheduler.Timer] says when to call Next although nothing happened.
// [Scheduler.Stall] tells that a channel waits for a semaphore, so that it stands
// in nobody's way. [Scheduler.Alert] says what to do about requests that do not
// end.
//
// # State
//
// All that the scheduler knows lies in [State]: plain data with a version, which
// [Scheduler.Freeze] copies and [Restore] takes up again. What is kept beside it
// (heaps, names) follows from it.
package sched

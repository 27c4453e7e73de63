// Package sched decides which guest's work a card executes next.
//
// A card takes requests from its channels in turn, one of each. So shares are made at
// submission: a request is forwarded to the card when it is its owner's turn, and its time is
// charged when an engine has worked for it. A request that waited for a semaphore needs a turn when
// the semaphore is released, and one that has an engine for long loses its turn. The caller
// reports submissions and completions, and the package selects the entries to forward. It
// has no clock, no goroutine and no lock: time is an argument, and the caller holds its own
// lock around every call. No call waits or allocates in its steady state. A decision looks
// at all nodes, at some once for each level: the gate has at most 128 channels.
//
// # Who owns what
//
// Below the card are guests, below them groups (guest processes), to any depth, and at
// the end channels: the [Tree]. Every node has a weight, a priority and a cap among its siblings.
// [State] has what each node used and what it may use: accounts, tags, caps. The core adds where each
// request is, and asks the policy. A policy is one file with four methods: Arrive, Next, Charge, Timer.
// The watchdog ends requests that do not end. [Scheduler] is what the caller calls.
//
// # Time served
//
// Each node has a tag for each engine: the time that it was served, divided by its
// weight. Time that a channel used is charged to all nodes above it. Requests on the card are in the
// tag with the channel's mean length until they end, and with the measured time from then on. All
// policies keep the tags, so a change of policy forgets no debt.
//
// # Calls
//
// Call [Scheduler.Submit] for a doorbell, then [Scheduler.Next] until it has nothing: each
// answer is a number of entries of a channel by which GP_PUT may advance. Call
// [Scheduler.Complete] when the card has completed some, and Next again. [Scheduler.Timer]
// returns when to call Next without an event. [Scheduler.Stall] reports that a channel
// waits for a semaphore, [Scheduler.Paused] that one has left its engine as Next demanded.
// [Scheduler.Alert] returns the action against a request that does not end.
//
// The whole state of the scheduler is in [State], plain data; nothing is kept beside it.
package sched

// Package shares has guests in the test process use a software card that is shared
// by time, in real time: what they get of it, that changes under load lose nothing,
// and that a request that does not end is its own channel's end alone.
//
// A [Hall] owns a card, an aggregator, and virtual GPUs behind sockets; each
// [Player] has a guest and belongs to one goroutine. A [Throttle] is what measurements
// load the card with (cmd/shares): a player's too, and its goroutine's.
package shares

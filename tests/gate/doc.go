// Package gate has guests in the test process look at the gate that keeps submissions
// from the card until it is their turn: what the card gets of a ring, and what a
// guest reads of its own registers meanwhile. The guests come over sockets, the
// windows are trapped or mapped, and the card is the software card.
package gate

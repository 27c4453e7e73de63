// Package gate tests the gate that delays submissions until their turn: which part of a
// ring the card gets, and which values a guest reads from its own registers until then. The
// guests run in the test process and attach over sockets, with trapped or mapped windows,
// to the software card.
package gate

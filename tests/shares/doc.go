// Package shares tests on the software card, in real time, that the gate charges guests for
// their use of the card and obeys the scheduler. Package model proves the policies in
// virtual time.
package shares

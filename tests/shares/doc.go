// Package shares tests on the software card, in real time, that the gate charges
// guests for what the card does for them and obeys the scheduler. What the policies
// do is proved in virtual time by package model.
package shares

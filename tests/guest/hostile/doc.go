// Package hostile is a guest that breaks every rule it can name. An [Attacker]
// has a guest with channels that work, and does [Action]s: data that [Gen] draws
// with rapid. It waits for nothing that its own deeds may have broken; the only
// error it returns is a connection that ended, which no deed may cause.
//
// What it reads goes to Attacker.Seen, and what its engines copy lands in its
// RAM: a test that knows what others have in memory looks for it there.
//
// An Attacker is one goroutine's. Between its accesses the device works on: tables
// in RAM change while they are read, mappings go while they are used.
package hostile

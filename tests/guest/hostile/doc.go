// Package hostile is a guest that breaks every rule. An [Attacker] has a guest with
// working channels and does [Action]s, which [Gen] draws with rapid. It does not wait
// for anything that its own actions may have broken. The only error that it returns is
// a lost connection, which no action may cause.
//
// What it reads goes to Attacker.Seen, and what its engines copy lands in its RAM: a
// test that knows what others have in memory searches both.
//
// One goroutine owns an Attacker. The device works on between its accesses: tables in
// RAM change while they are read, and mappings go while they are used.
package hostile

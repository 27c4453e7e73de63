// Package hostile is a guest that breaks every rule. An [Attacker] has a guest with
// working channels and does [Action]s, which [Gen] draws with rapid. It does not wait
// for anything that its own actions may have broken. The only error that it returns is
// a lost connection, which no action may cause.
//
// Data that it reads goes to Attacker.Seen, and data that its engines copy to its RAM: a
// test that knows the other guests' memory searches both.
//
// One goroutine owns an Attacker. The device works concurrently: tables in RAM change while
// they are read, and mappings are removed while they are used.
package hostile

// Package agent serves the lab's requests inside a guest: it reads one JSON object
// a line from a serial port, runs the command, and replies.
//
// A Server runs each request on a goroutine of its own, so that a fault can be
// provoked while a load runs; out guards the line that replies go out by. The load that
// is running, if any, belongs to the Server, under mu. The two locks are never held
// together. Serve returns when its input ends, after every request has.
//
// A System is the guest's kernel as files show it. Its Root is "/" in a guest and a
// folder of samples in tests.
package agent

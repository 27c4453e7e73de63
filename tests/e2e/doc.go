// Package e2e tests the whole: QEMU, stock Debian kernels with their own
// nouveau, and the software card behind a vfio-user socket, in one process with
// the test, which thus sees the card's own counters.
//
// A virtual machine takes seconds to boot, so one machine serves many checks:
// each test is a sequence of steps on one [stand.Stand], and a step is a subtest.
// Two machines run at a time. Nothing here is timed; time-outs only end what
// hangs.
//
// What is checked of the card is counted by the card: a copy that came out right
// proves nothing about who made it.
package e2e

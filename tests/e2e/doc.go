// Package e2e tests QEMU, stock Debian kernels with their own nouveau, and the software
// card behind a vfio-user socket. The server runs in the test's own process, so a test
// reads the card's own counters: a correct copy does not prove that the card made it.
//
// A boot takes seconds, so one machine serves many checks. Each test is a
// sequence of steps on one machine, and a step is a subtest. The gate boots as few
// machines as it can. Tests that scale.ReleaseOnly skips belong to make test-release.
//
// No test asserts a duration. Deadlines only end hung machines.
package e2e

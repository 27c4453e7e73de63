// Package windows holds what a guest sees of mapped windows against what it sees
// when every access is trapped: the same program is run on two cards, one of which
// has its BARs mapped as QEMU maps them. It holds tests alone.
package windows

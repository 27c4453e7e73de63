// Package windows compares mapped windows with trapped ones: the same program runs on two
// cards, one of which has its BARs mapped as QEMU maps them. It has only tests.
package windows

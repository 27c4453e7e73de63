// Package mmio is the register engine: a chip is declared as rows, and the
// engine turns guest accesses into register values, effects and counts.
//
// A [Reg] is one row: name, offset, width, repetition, reset value, an access
// mode for each field, and one sentence that says what a read or a write does.
// A [Space] is built from rows ([Block]), from windows into other memory
// ([Aperture]) and from the code behind the rows ([Bindings]). Building refuses
// what does not fit: two rows on one byte, overlapping fields, a row that
// claims an effect nobody bound, a binding for a row that claims none. The
// error names both sides.
//
// What a guest can do to a Space is bounded by three rules:
//
//   - A declared register changes as its access modes say, and nothing else
//     changes unless a bound effect does it.
//   - An undeclared offset (a hole) is plain storage that no effect ever reads:
//     the guest gets back what it wrote, the access is counted in [Missed], and
//     the first offsets are remembered with the nearest declared name.
//   - An access of 1, 2, 4 or 8 bytes may start anywhere. It is split at dword
//     borders; each register sees the bytes that were really written.
//
// Cost: dispatch is two table look-ups (page, dword). Every access is counted
// per row; the time spent is sampled, one access in [SampleEvery]. Nothing is
// allocated after New except a hole's first entry in the list of missed offsets.
//
// Ownership and locks: a Space belongs to its owner (a card, a virtual GPU),
// whose lock guards Read, Write, Reset and every [Cell]. Counters are atomic
// and may be read at any time. The trace ring and the list of missed offsets
// each have a mutex of their own, taken last and held for a few instructions.
// The package starts no goroutines.
package mmio

// Package mmio is the register engine: a chip is declared as rows, and the
// engine turns guest accesses into register values, effects and counts.
//
// A [Reg] is one row: name, offset, width, repetition, reset value, an access
// mode for each field, and one sentence that says what a read or a write does.
// A [Space] is built from rows ([Block]), from windows into other memory
// ([Aperture]) and from the code behind the rows ([Bindings]). Building refuses
// what does not fit: two rows on one byte, overlapping fields, a row that
// claims an effect that is not bound, a binding for a row that claims none. The
// error names both sides.
//
// What a guest can do to a Space is bounded by three rules:
//
//   - A declared register changes as its access modes say, and nothing else
//     changes unless a bound effect does it.
//   - An undeclared offset (a hole) is plain storage that no effect ever reads:
//     the guest gets back what it wrote, the access is counted in [Missed], and
//     the first offsets are listed with the nearest declared name. The bytes
//     beside a register narrower than its dword are holes too.
//   - An access of 1, 2, 4 or 8 bytes may start anywhere. It is split at dword
//     borders; each register sees the bytes that were really written, the lower
//     offset first. An access that leaves the space does nothing but count.
//
// Cost: dispatch is two table look-ups (page, dword). Every access is counted
// per row; the time spent is sampled, see [SampleEvery]. Nothing is allocated
// after New except by Reset and by the calls that return lists.
//
// Ownership and locks: a Space belongs to its owner (a card, a virtual GPU),
// whose lock guards Read, Write, Reset, ResetBlock, Rows, State, SetState and
// every [Cell]. Counts, Missed, Report and NameOf may be called at any time from
// any goroutine: the counters are atomic. The package starts no goroutines.
package mmio

package trace

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// ChipError is a recording of another chip than is wanted.
type ChipError struct{ Recorded, Wanted string }

func (e *ChipError) Error() string {
	return fmt.Sprintf("the recording is of a %s, and it was to be compared with a %s; record one of a %s", e.Recorded, e.Wanted, e.Wanted)
}

// accesses are those of one GPU in a recording, one by one.
type accesses struct {
	f   *File
	gpu int
	n   int // so many were read

	next trace.Event
	more bool // next is one
}

func newAccesses(f *File, gpu int) *accesses {
	a := &accesses{f: f, gpu: gpu}
	a.read()
	return a
}

// read reads the next access to next.
func (a *accesses) read() {
	for a.more = a.f.Next(&a.next); a.more; a.more = a.f.Next(&a.next) {
		if k := a.next.Kind; int(a.next.GPU) == a.gpu && (k == trace.Read || k == trace.Write || k == trace.Reset || k == trace.Lost) {
			return
		}
	}
}

// take takes the next access. Of reads of one place in a row it takes the last: a driver that waits reads as often as it must.
func (a *accesses) take() (e trace.Event, ok bool) {
	for a.more {
		e, ok = a.next, true
		a.n++
		a.read()
		if e.Kind != trace.Read || a.next.Kind != trace.Read || !same(&e, &a.next) {
			break
		}
	}
	return e, ok
}

// same reports whether two accesses are of one place.
func same(a, b *trace.Event) bool {
	return a.Kind == b.Kind && a.Unit == b.Unit && a.Addr == b.Addr && a.Size == b.Size
}

// ofTime reports whether a read has the time, which is never the same.
func (f *File) ofTime(e *trace.Event) bool {
	return e.Kind == trace.Read && e.Unit == 0 && strings.Contains(f.place(e), "PTIMER_TIME_")
}

// Diff writes the first difference between what two GPUs were asked and answered, and how the counts of registers differ. It
// reports whether there is one.
func Diff(w io.Writer, a, b *File, gpuA, gpuB int) (differ bool, err error) {
	if x, y := a.GPUs[gpuA].Chip, b.GPUs[gpuB].Chip; x != y {
		return false, &ChipError{y, x}
	}
	x, y := newAccesses(a, gpuA), newAccesses(b, gpuB)
	countsA, countsB := make(map[string]int), make(map[string]int)
	for {
		e, more := x.take()
		o, others := y.take()
		if more {
			countsA[a.row(&e)]++
		}
		if others {
			countsB[b.row(&o)]++
		}
		if !more && !others {
			break
		}
		if differ || more && others && same(&e, &o) && (e.Value == o.Value || a.ofTime(&e)) {
			continue
		}
		differ = true
		if _, err := fmt.Fprintf(w, "The first difference, after %d and %d accesses:\n  A: %s\n  B: %s\n", x.n, y.n, a.or(&e, more), b.or(&o, others)); err != nil {
			return differ, err
		}
	}
	if err := errors.Join(a.err, b.err); err != nil {
		return differ, err
	}
	return differ, summary(w, differ, x.n, y.n, countsA, countsB)
}

// or describes an access, or the end.
func (f *File) or(e *trace.Event, there bool) string {
	if !there {
		return "the recording ends"
	}
	return f.text(e)
}

// summary writes the counts that differ. Reads of one place in a row are one.
func summary(w io.Writer, differ bool, n, m int, a, b map[string]int) error {
	if !differ {
		_, err := fmt.Fprintf(w, "No difference in %d and %d accesses.\n", n, m)
		return err
	}
	names := make(map[string]bool)
	for name := range a {
		names[name] = names[name] || a[name] != b[name]
	}
	for name := range b {
		names[name] = names[name] || a[name] != b[name]
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			fmt.Fprintf(&text, "%9d%9d  %s\n", a[name], b[name], name)
		}
	}
	if text.Len() > 0 {
		text.WriteString("Reads of one register in a row count as one.\n")
		_, err := fmt.Fprintf(w, "\nRegisters with other counts:\n        A        B\n%s", &text)
		return err
	}
	_, err := fmt.Fprint(w, "Each register has the same count in both.\n")
	return err
}

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes aligned columns under an optional title. A table without rows
// writes nothing.
type table struct {
	out         *strings.Builder
	title, head string
	w           *tabwriter.Writer
}

func newTable(out *strings.Builder, title, head string) *table { return &table{out, title, head, nil} }

func (t *table) row(format string, args ...any) {
	if t.w == nil {
		if t.title != "" {
			fmt.Fprintf(t.out, "\n%s\n", t.title)
		}
		t.w = tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t.w, "  %s\n", t.head)
	}
	fmt.Fprintf(t.w, "  "+format+"\n", args...)
}

func (t *table) flush() {
	if t.w != nil {
		t.w.Flush() // a strings.Builder takes everything
	}
}

// short rounds a time to three digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

func plural(n uint64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

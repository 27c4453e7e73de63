package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
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

// listTable writes structures of the control API as rows. The columns have the names of the JSON,
// which docs/reference/counters.md explains.
func listTable[T any](out *strings.Builder, title string, list []T) {
	var head []string
	var at [][]int
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			head, at = append(head, strings.TrimSuffix(name, "_ns")), append(at, f.Index)
		}
	}
	t := newTable(out, title, strings.Join(head, "\t"))
	for i := range list {
		var cells []string
		for _, index := range at {
			cells = append(cells, cellText(reflect.ValueOf(&list[i]).Elem().FieldByIndex(index)))
		}
		t.row("%s", strings.Join(cells, "\t"))
	}
	t.flush()
}

func cellText(v reflect.Value) string {
	switch v := v.Interface().(type) {
	case time.Duration:
		return short(v).String()
	case time.Time:
		return v.Format("2006-01-02 15:04:05.000")
	case uint32: // an offset
		return fmt.Sprintf("%06x", v)
	default:
		return fmt.Sprint(v)
	}
}

// countsOf returns the counts of a structure of the control API by name.
func countsOf(of any) map[string]uint64 {
	out, v := make(map[string]uint64), reflect.ValueOf(of)
	for i := range v.NumField() {
		if v.Field(i).CanUint() {
			out[v.Type().Field(i).Tag.Get("json")] = v.Field(i).Uint()
		}
	}
	return out
}

// countTable lists the counts that are not zero, but for those that every client makes rise.
func countTable(b *strings.Builder, title string, counts map[string]uint64) {
	t := newTable(b, title, "name\tcount")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		switch n := counts[name]; {
		case n == 0 || usualCounts[name]:
		case strings.HasSuffix(name, "_ns"):
			t.row("%s\t%v", name, short(time.Duration(n)))
		default:
			t.row("%s\t%d", name, n)
		}
	}
	t.flush()
}

// usualCounts are the names of counters that every client makes rise when it attaches.
var usualCounts = func() map[string]bool {
	usual := make(map[string]bool)
	for _, c := range new(aperture.Stats).Counts() {
		usual[c.Name] = c.Usual
	}
	return usual
}()

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

package traps

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// titles of the ways, as the table's heads.
var titles = map[Way]string{Socket: "over the bare socket", Guest: "by a guest, through QEMU"}

// Text writes the report as a table for each way: medians, with the least and the greatest.
func (r *Report) Text(transports []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "median (least-most) of %d rounds of %d accesses, an access\n", r.Rounds, r.Count)
	for _, way := range []Way{Socket, Guest} {
		r.table(&b, way, transports)
	}
	if r.NoGuest != "" {
		fmt.Fprintf(&b, "\n%s: not measured: %s\n", titles[Guest], r.NoGuest)
	}
	return b.String()
}

func (r *Report) table(b *strings.Builder, way Way, transports []string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	first := true
	for _, f := range r.Figures {
		if f.Way != way {
			continue
		}
		if first {
			first = false
			fmt.Fprintf(b, "\n%s", titles[way])
			if m := r.Machine; way == Guest && m != nil {
				fmt.Fprintf(b, " %s with %s, Linux %s", m.QEMU, m.Accel, m.Kernel)
			}
			b.WriteByte('\n')
			fmt.Fprintf(w, "access\t%s, ns", strings.Join(transports, ", ns\t"))
			if len(transports) == 2 {
				fmt.Fprintf(w, "\t%s / %s", transports[1], transports[0])
			}
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, f.Access)
		for _, t := range transports {
			s := f.NS[t]
			fmt.Fprintf(w, "\t%.0f (%.0f-%.0f)", s.Median, s.Least, s.Most)
		}
		if f.Ratio != nil {
			fmt.Fprintf(w, "\t%.2f (%.2f-%.2f)", f.Ratio.Median, f.Ratio.Least, f.Ratio.Most)
		}
		fmt.Fprintln(w)
	}
	w.Flush() // a strings.Builder takes everything
}

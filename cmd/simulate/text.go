package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteJSON writes the report for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// brief writes a time with three digits.
func brief(d time.Duration) string {
	switch a := d.Abs(); {
	case a >= 100*time.Second:
		return d.Round(time.Second).String()
	case a >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case a >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }

func points(v float64) string { return fmt.Sprintf("%.2f points", 100*v) }

func index(v float64) string { return fmt.Sprintf("%.4f", v) }

// said writes a figure that there may not be.
func said[T any](v *T, write func(T) string) string {
	if v == nil {
		return "-"
	}
	return write(*v)
}

// Legend says what the figures are.
const Legend = "Share is of the time that the graphics engine was busy. Ideal is what a card that could be divided at will would have given, " +
	"while the process had work: by priority first, then by weight, up to caps. Share error is the largest difference of the two; " +
	"lag the most time that anybody was behind or ahead of the ideal, at any moment; Jain's index is 1 where all have the same part of their ideals; " +
	"efficiency is the part of the whole time that the graphics engine was busy. A - stands where there is no ideal."

// legend is that for a terminal, with why there is no ideal.
func (r *Report) legend() string {
	text := "\n" + strings.ReplaceAll(strings.ReplaceAll(Legend, ". ", ".\n"), "; ", ";\n") + "\n"
	for i := range r.Runs {
		if x := &r.Runs[i]; x.NoIdeal != "" {
			text += fmt.Sprintf("%s has no ideal: %s.\n", x.Name, x.NoIdeal)
		}
	}
	return text
}

// most is how many processes of a run a person is shown.
const most = 16

// Text is the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.Name)
	if r.About != "" {
		fmt.Fprintf(&b, ": %s", r.About)
	}
	b.WriteString("\n")
	if r.Axis != "" {
		r.sweepText(&b)
		return b.String()
	}
	fmt.Fprintf(&b, "%v of card time, each policy\n", r.Card)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\n  policy\tshare error\tJain\tefficiency\tlag\n")
	for i := range r.Runs {
		x := &r.Runs[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%.1f %%\t%s\n", x.Name, said(x.ShareError, points), said(x.Jain, index), 100*x.Efficiency, said(x.Lag, brief))
	}
	w.Flush() // a strings.Builder takes everything
	for i := range r.Runs {
		x := &r.Runs[i]
		fmt.Fprintf(&b, "\n%s\n", x.Name)
		fmt.Fprint(w, "  process\tshare\tideal\tlag\trequests\tlatency p50\tp99\tworst\tcopies\n")
		for k := range x.Clients[:min(len(x.Clients), most)] {
			c := &x.Clients[k]
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", c.Name, percent(c.Share), said(c.Ideal, percent), said(c.Lag, brief), c.Done, brief(c.Median), brief(c.P99), brief(c.Worst), brief(c.Busy[1]))
		}
		w.Flush()
		if more := len(x.Clients) - most; more > 0 {
			fmt.Fprintf(&b, "  and %d more, which the JSON has\n", more)
		}
	}
	b.WriteString(r.legend())
	return b.String()
}

func (r *Report) sweepText(b *strings.Builder) {
	fmt.Fprintf(b, "Runtime of the program against %s\n\n", r.Axis)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "  policy\tflatness\tslope")
	for _, at := range r.At {
		fmt.Fprintf(w, "\t%g", at)
	}
	fmt.Fprintln(w)
	for i := range r.Runs {
		x := &r.Runs[i]
		fmt.Fprintf(w, "  %s\t%.2f %%\t%+.3f", x.Name, 100*x.Flatness, x.Slope)
		for _, d := range x.Runtimes {
			fmt.Fprintf(w, "\t%s", brief(d))
		}
		fmt.Fprintln(w)
	}
	w.Flush() // a strings.Builder takes everything
	b.WriteString("\nFlatness is the longest runtime less the shortest, by the median: 0 is fair, whatever the other does.\n")
}

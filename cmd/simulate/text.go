package simulate

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// brief writes a time with three digits or so.
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

// maxRows is how many processes of a run the text has.
const maxRows = 16

const legend = `
share: part of the time that the graphics engine worked for the process
fair: the same on a card that can be divided at will, for the same load: by priority, weight and cap
error: largest difference of the two, in points
Jain: Jain's index of shares over fair shares; 1 is fair
efficiency: part of the time that the graphics engine worked
lag: most time that a process with work was behind or ahead of such a card
latency: from doorbell to end of a request
`

// Text is the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Name)
	if r.About != "" {
		fmt.Fprintf(&b, ": %s", strings.TrimSpace(r.About))
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if r.Axis != "" {
		fmt.Fprintf(w, "runtime of the program by the %s\n\n  policy\tflatness\tslope", r.Axis)
		for _, at := range r.At {
			fmt.Fprintf(w, "\t%g", at)
		}
		fmt.Fprintln(w)
		for i := range r.Runs {
			x := &r.Runs[i]
			fmt.Fprintf(w, "  %s\t%s\t%+.3f", x.Policy, percent(x.Flatness), x.Slope)
			for _, d := range x.Runtimes {
				fmt.Fprintf(w, "\t%s", brief(d))
			}
			fmt.Fprintln(w)
		}
		w.Flush()
		b.WriteString("\nflatness: longest runtime less the shortest, by the median; 0 is fair\n")
		return b.String()
	}
	fmt.Fprintf(w, "%v of card time for each policy\n\n  policy\terror\tJain\tefficiency\tlag\n", r.Card)
	for i := range r.Runs {
		x := &r.Runs[i]
		fmt.Fprintf(w, "  %s\t%.2f points\t%.4f\t%s\t%s\n", x.Policy, 100*x.ShareError, x.Jain, percent(x.Efficiency), brief(x.Lag))
	}
	w.Flush()
	for i := range r.Runs {
		x := &r.Runs[i]
		fmt.Fprintf(w, "\n%s\n  process\tshare\tfair\tlag\trequests\tlatency p50\tp99\tmax\tcopies\n", x.Policy)
		for k := range x.Clients[:min(len(x.Clients), maxRows)] {
			c := &x.Clients[k]
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", c.Name, percent(c.Share), percent(c.Fair), brief(c.Lag), c.Done, brief(c.Median), brief(c.P99), brief(c.Worst), brief(c.Busy[1]))
		}
		w.Flush()
		if more := len(x.Clients) - maxRows; more > 0 {
			fmt.Fprintf(&b, "  and %d more, which --json has\n", more)
		}
	}
	b.WriteString(legend)
	return b.String()
}

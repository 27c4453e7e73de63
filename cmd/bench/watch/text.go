package watch

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes a line for each attack, then what failed.
func Text(w io.Writer, rows []Row) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "attack\twho")
	for _, op := range ops {
		fmt.Fprintf(t, "\t%s", op.name)
	}
	fmt.Fprintln(t, "\tnoise\ttraps\tshare\tcontrol\tend\tverdict")
	var why strings.Builder
	for i := range rows {
		rows[i].line(t)
		for _, s := range append(rows[i].Failed, rows[i].Notes...) {
			fmt.Fprintf(&why, "%s: %s\n", rows[i].Attack, s)
		}
	}
	t.Flush()
	b.WriteString("\nThe victim's 99th percentile (median) by those without the attack, the median of the rounds; at most 2.0.\n" +
		"noise: the largest spread of the rounds without it. traps: by those without it. share: percent of an engine that both want, of those\n" +
		"beside a fair neighbour; at most 3 less. control: the slowest answer; at most 100ms. end: from SIGTERM; at most 2s.\n\n")
	b.WriteString(why.String())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Row) line(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s", r.Attack, r.Who)
	if r.Skipped != "" {
		fmt.Fprintf(w, "%s-\t-\t-\t-\t-\tskipped: %s\n", strings.Repeat("\t-", len(ops))+"\t", r.Skipped)
		return
	}
	noise := 1.0
	for i := range ops {
		if i >= len(r.Work) || r.Work[i].Attacked.P99 == 0 {
			fmt.Fprint(w, "\t-")
			continue
		}
		noise = max(noise, r.Work[i].Noise)
		fmt.Fprintf(w, "\t%s (%s)", digits(r.Work[i].P99), digits(r.Work[i].Median))
	}
	share := "-"
	if r.Share != nil {
		share = fmt.Sprintf("%.0f of %.0f", r.Share.Attacked, r.Share.Quiet)
	}
	verdict := "withstood"
	if len(r.Failed) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\t%s\t%s\t%s\t%v\t%v\t%s\n", digits(noise), digits(r.Traps), share, r.Control.Round(time.Millisecond), r.End.Round(time.Millisecond), verdict)
}

// digits writes a ratio.
func digits(r float64) string {
	if r >= 10 {
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.1f", r)
}

package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// timeText is a time in seconds with three digits and its unit.
func timeText(s float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if math.Abs(s) >= unit.size {
			return three(s/unit.size) + " " + unit.name
		}
	}
	return three(s*1e9) + " ns"
}

// three writes a number with three digits.
func three(n float64) string {
	places := 0
	for at := math.Abs(n); at < 100 && places < 2; at *= 10 {
		places++
	}
	return fmt.Sprintf("%.*f", places, n)
}

// countText is a count, which may be a mean, with three digits at least.
func countText(n float64) string {
	if math.Abs(n) >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

// header says by what, where and how the run was measured.
func (r *Results) header(b *strings.Builder) {
	for _, n := range r.Notes {
		b.WriteString(n + "\n")
	}
	if len(r.Lines) > 0 && r.Lines[0].GetConfig("cpu") != "" {
		of := r.Lines[0].GetConfig
		fmt.Fprintf(b, "%s, %s processors", of("cpu"), of("cpus"))
		if of("quick") != "" {
			b.WriteString("; quick: small parameters and few rounds, so a ratio may be off by half")
		}
		b.WriteString("\n\n")
	}
}

// programSteps are those of GPUvm's evaluation, by the phases that make them.
var programSteps = []struct {
	name   string
	phases []string
}{{"init", []string{"init"}}, {"copy", []string{"host-to-device", "device-to-host"}}, {"launch", []string{"launch"}}, {"close", []string{"close"}}}

// steps is the table of a program's steps.
func (r *Results) steps(b *strings.Builder, base string) {
	mine := keep(r.keys, func(k Key) bool { return k.Where == process && k.Scenario == program.name })
	rows := make([]row, len(programSteps))
	for i, step := range programSteps {
		rows[i] = row{"program " + step.name, func(setup string) string {
			sum := func(setup string) (n float64) {
				for _, k := range mine {
					for _, phase := range step.phases {
						if k.Setup == setup {
							n += r.Medians(k)[phase+"-"+unitTime]
						}
					}
				}
				return n
			}
			text := timeText(sum(setup))
			if of := sum(base); of > 0 && setup != base {
				text += fmt.Sprintf(" (%.2f)", sum(setup)/of)
			}
			return text
		}}
	}
	title := "Steps of a program: time"
	if slices.ContainsFunc(mine, func(k Key) bool { return k.Setup == base }) {
		title += ", and its ratio to " + base
	}
	grid(b, title, mine, rows)
}

// scans is the table of how often page tables were scanned.
func (r *Results) scans(b *strings.Builder, _ string) {
	const scans, asked = "scans/op", "invalidates/op"
	scanned := keep(r.keys, func(k Key) bool { return k.Scenario != traps.name && r.Medians(k)[scans] > 0 })
	places := distinct(scanned, placeOf)
	mine := keep(r.keys, func(k Key) bool { return r.values[k][scans] != nil && slices.Contains(places, placeOf(k)) })
	var rows []row
	for _, p := range places {
		name := p.scenario
		if p.where == machines {
			name += ", in machines"
		}
		rows = append(rows, row{name, func(setup string) string {
			var n, of float64
			for _, k := range mine {
				if placeOf(k) == p && k.Setup == setup {
					n, of = n+r.Medians(k)[scans], of+r.Medians(k)[asked]
				}
			}
			return countText(n) + " of " + countText(of)
		}})
	}
	grid(b, "Scans of a guest's page tables, of so many TLB invalidates; one scan can serve several", mine, rows)
}

// shares is the table of fairness.
func (r *Results) shares(b *strings.Builder, _ string) {
	mine := keep(r.keys, func(k Key) bool { return r.values[k]["fairness"] != nil })
	var rows []row
	for _, name := range distinct(mine, func(k Key) string { return k.Scenario + " " + k.Case }) {
		rows = append(rows, row{name, func(setup string) string {
			for _, k := range mine {
				if k.Scenario+" "+k.Case == name && k.Setup == setup {
					return fmt.Sprintf("%.2f", r.Medians(k)["fairness"])
				}
			}
			return "-"
		}})
	}
	grid(b, "Fairness: the least share by what is due; of a crowd, the first guest's time by the last one's", mine, rows)
}

// row is a line of a grid, with a cell for each set-up.
type row struct {
	name string
	cell func(setup string) string
}

// grid writes a table with a column for each set-up of the keys, unless there is none or no row.
func grid(b *strings.Builder, title string, keys []Key, rows []row) {
	if len(keys) == 0 || len(rows) == 0 {
		return
	}
	setups := distinct(keys, func(k Key) string { return k.Setup })
	fmt.Fprintln(b, title)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\t%s\n", strings.Join(setups, "\t"))
	for _, r := range rows {
		fmt.Fprint(t, r.name)
		for _, s := range setups {
			fmt.Fprint(t, "\t"+r.cell(s))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	b.WriteByte('\n')
}

// legend explains what the tables have.
func (r *Results) legend(b *strings.Builder, base string, groups []group) {
	if slices.ContainsFunc(groups, func(g group) bool { return g.ratio != nil }) {
		fmt.Fprintf(b, "ratio: time by that of %s, round by round; a time where that lacks the scenario\n", base)
	}
	if slices.ContainsFunc(groups, func(g group) bool { return g.ratio != nil && hasInterval(g.ratio) }) {
		b.WriteString("± n%: the farther end of the ratio's 95 % interval is so far from it\n")
	}
	if slices.ContainsFunc(groups, func(g group) bool { return g.ratio != nil && !hasInterval(g.ratio) }) {
		b.WriteString("without an interval, which takes 6 rounds: other work on the machine may have doubled or halved the ratio\n")
	}
	if slices.ContainsFunc(groups, func(g group) bool { return g.partial }) {
		b.WriteString("*: only the cases that both have: a guest does not trap what it maps, and a whole card is not shared\n")
	}
	for i := range setups {
		if s := &setups[i]; slices.Contains(r.Setups(), s.name) {
			fmt.Fprintf(b, "%s: %s\n", s.name, s.about)
		}
	}
}

package result

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"
)

var whereTitles = map[string]string{Process: "In this process", Machine: "In virtual machines"}

// Text writes the results: one line for each scenario. With all, it writes a line for each case and
// unit, with a column for each set-up.
func (r *Run) Text(w io.Writer, all bool) error {
	var b strings.Builder
	if all {
		r.units(&b)
	} else {
		r.screen(&b)
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "not measured: %s\n", e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func newTable(b *strings.Builder) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
}

func seconds(ns float64) string { return benchunit.Scale(ns/1e9, benchunit.Decimal) + "s" }

func count(n float64) string {
	if n < 10_000 {
		return fmt.Sprintf("%.4g", n)
	}
	return benchunit.Scale(n, benchunit.Decimal)
}

// ratioText is a ratio with its interval, such as "1.02 ± 3%".
func ratioText(s *Spread) string {
	if s == nil || math.IsNaN(s.Median) {
		return "-"
	}
	text := fmt.Sprintf("%.2f", s.Median)
	if s.Low != nil {
		text += " ±" + s.text
	}
	return text
}

// Transport is the scenario whose set-ups are transports. It has a table of its own, with a line for
// each case.
const Transport = "transport"

// screen writes one line for each scenario.
func (r *Run) screen(b *strings.Builder) {
	all, base := r.Groups(false), r.baselines()[0]
	notes := map[string]bool{}
	for _, where := range wheres(all) {
		in := func(transport bool) func(g Group) bool {
			return func(g Group) bool { return g.Where == where && (g.Scenario == Transport) == transport }
		}
		groups := only(all, in(false))
		if len(groups) > 0 {
			fmt.Fprintf(b, "%s (%s)\n", whereTitles[where], repetitions(groups))
			grid(b, "scenario", groups, func(g *Group) string { return g.Scenario }, base, notes)
			b.WriteByte('\n')
		}
		if groups = only(r.Groups(true), in(true)); len(groups) > 0 {
			b.WriteString("One access over a bare socket, against a bare echo\n")
			grid(b, "access", groups, func(g *Group) string { return g.Case }, r.baselines()[1], notes)
			b.WriteByte('\n')
		}
	}
	interval := "median, and the half width of its 95 % interval (from 6 rounds)"
	if !slices.ContainsFunc(all, func(g Group) bool { return g.Ratio != nil && g.Ratio.Low != nil }) {
		interval = "without an interval, which takes 6 rounds: other work on the machine may have doubled or halved it"
	}
	fmt.Fprintf(b, "ratio: time by that of %s, round by round; %s\n", base, interval)
	b.WriteString("naive: a TLB invalidate scans all tables; trapped: only what changed; all: the guest also maps windows; umbra bench --list has more\n")
	if notes["alone"] {
		fmt.Fprintf(b, "a time in place of a ratio: %s does not have the scenario\n", base)
	}
	if notes["partial"] {
		b.WriteString("*: only the cases that both have: a guest does not trap what it maps, and a whole card is not shared\n")
	}
}

func only(groups []Group, keep func(Group) bool) []Group {
	return slices.DeleteFunc(slices.Clone(groups), func(g Group) bool { return !keep(g) })
}

// grid writes a line for each row: time and traps of the baseline, then the ratio and the traps of
// each other set-up.
func grid(b *strings.Builder, head string, groups []Group, row func(*Group) string, base string, notes map[string]bool) {
	setups, rows := namesOf(groups, func(g *Group) string { return g.Setup }), namesOf(groups, row)
	w := newTable(b)
	fmt.Fprintf(w, "\t%s\t\n%s", strings.Join(setups, "\t\t"), head)
	for _, s := range setups {
		what := "ratio"
		if s == base || !slices.Contains(setups, base) {
			what = "time"
		}
		fmt.Fprintf(w, "\t%s\ttraps", what)
	}
	fmt.Fprintln(w)
	for _, name := range rows {
		fmt.Fprint(w, name)
		for _, setup := range setups {
			i := slices.IndexFunc(groups, func(g Group) bool { return g.Setup == setup && row(&g) == name })
			if i < 0 {
				fmt.Fprint(w, "\t-\t-")
				continue
			}
			g := &groups[i]
			text := ratioText(g.Ratio)
			if g.Ratio == nil || setup == base {
				text = seconds(g.Time.Median)
				notes["alone"] = notes["alone"] || setup != base
			}
			if g.Partial {
				text += "*"
				notes["partial"] = true
			}
			fmt.Fprintf(w, "\t%s\t%s", text, count(g.Traps.Median))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// units writes all medians: a line for each case and unit, a column for each set-up.
func (r *Run) units(b *strings.Builder) {
	t := r.table()
	var cases []string
	name := func(k Key) string {
		return k.Where + "\t" + strings.TrimSuffix(k.Scenario+"/"+k.Case, "/")
	}
	every := func(Key) bool { return true }
	cases = distinct(t.keys, every, name)
	setups := distinct(t.keys, every, func(k Key) string { return k.Setup })
	w := newTable(b)
	fmt.Fprintf(w, "where\tcase\tunit\t%s\n", strings.Join(setups, "\t"))
	for _, c := range cases {
		var keys []Key
		for _, k := range t.keys {
			if name(k) == c {
				keys = append(keys, k)
			}
		}
		for _, u := range t.units(keys) {
			fmt.Fprintf(w, "%s\t%s", c, u)
			for _, s := range setups {
				text := "-"
				for _, k := range keys {
					if v := t.by[k][u]; k.Setup == s && v != nil {
						text = valueText(v, u)
					}
				}
				fmt.Fprintf(w, "\t%s", text)
			}
			fmt.Fprintln(w)
		}
	}
	w.Flush()
}

func valueText(values []float64, unit string) string {
	s := Summarize(values)
	return benchunit.Scale(s.Center, benchunit.ClassOf(unit)) + " ±" + s.PctRangeString()
}

// Compare writes what differs between two runs, as benchstat decides it: Mann and Whitney's U-test
// at p < 0.05. With all, it writes every case and unit.
func Compare(w io.Writer, old, now *Run, all bool) error {
	var b strings.Builder
	for _, key := range []string{"cpu", "cpus", "goarch", "qemu", "accelerator"} {
		if was, is := old.Config(key), now.Config(key); was != is && was != "" && is != "" {
			fmt.Fprintf(&b, "The runs differ in %s (%s, %s): compare ratios, not times.\n", key, was, is)
		}
	}
	was, is := old.table(), now.table()
	table := newTable(&b)
	fmt.Fprintln(table, "where\tcase\tset-up\tunit\told\tnew\tdelta")
	improved, worse, same, missing, few := 0, 0, 0, 0, false
	for _, k := range is.keys {
		if was.by[k] == nil {
			missing++
			continue
		}
		for _, u := range is.units([]Key{k}) {
			before, after := was.by[k][u], is.by[k][u]
			if before == nil || !all && u != Time && u != Traps {
				continue
			}
			x := benchmath.NewSample(slices.Clone(before), &benchmath.DefaultThresholds)
			y := benchmath.NewSample(slices.Clone(after), &benchmath.DefaultThresholds)
			c := benchmath.AssumeNothing.Compare(x, y)
			few = few || len(before) < 4 || len(after) < 4
			d := c.FormatDelta(Summarize(before).Center, Summarize(after).Center)
			switch {
			case d == "~" || d == "0.00%" || strings.HasPrefix(d, "+0.00") || strings.HasPrefix(d, "-0.00"):
				same++
				if !all {
					continue
				}
			case strings.HasPrefix(d, "-") != better(u):
				improved++
			default:
				worse++
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s (%s)\n", k.Where, strings.TrimSuffix(k.Scenario+"/"+k.Case, "/"), k.Setup, u, valueText(before, u), valueText(after, u), d, c)
		}
	}
	for _, k := range was.keys {
		if is.by[k] == nil {
			missing++
		}
	}
	table.Flush()
	fmt.Fprintf(&b, "\n%d worse, %d better, %d without a significant difference (p >= 0.05)\n", worse, improved, same)
	if missing > 0 {
		fmt.Fprintf(&b, "%d cases are in one of the runs only\n", missing)
	}
	if few {
		b.WriteString("some cases have too few repetitions to tell: give both runs four or more\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// namesOf returns the distinct names of groups, in order.
func namesOf(groups []Group, name func(*Group) string) (out []string) {
	for i := range groups {
		if n := name(&groups[i]); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func wheres(groups []Group) []string {
	return namesOf(groups, func(g *Group) string { return g.Where })
}

// repetitions says how often groups were measured.
func repetitions(groups []Group) string {
	least, most := math.MaxInt, 0
	for i := range groups {
		least, most = min(least, groups[i].Time.N), max(most, groups[i].Time.N)
	}
	if least == most {
		return fmt.Sprintf("%d rounds", most)
	}
	return fmt.Sprintf("%d to %d rounds", least, most)
}

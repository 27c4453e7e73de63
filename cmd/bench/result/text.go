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
	switch {
	case all:
		r.units(&b)
	case r.hasOld():
		r.againstText(&b)
	default:
		r.screen(&b)
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "not measured: %s\n", e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Run) hasOld() bool {
	return slices.ContainsFunc(r.table().keys, func(k Key) bool { return k.Binary == Old })
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

// screen writes one line for each scenario: time and traps of the baseline, then of each other
// set-up the ratio and the traps.
func (r *Run) screen(b *strings.Builder) {
	groups := r.Groups(false)
	partial, alone := false, false
	for i, where := range r.places(groups) {
		if i > 0 {
			b.WriteByte('\n')
		}
		setups := setupsOf(groups, func(g *Group) bool { return g.Where == where && g.Scenario != Transport })
		fmt.Fprintf(b, "%s (%s)\n", whereTitles[where], repetitions(groups, where))
		w := newTable(b)
		for _, s := range setups {
			fmt.Fprintf(w, "\t%s\t", s)
		}
		fmt.Fprint(w, "\nscenario")
		for _, s := range setups {
			head := "ratio"
			if s == r.baselines()[0] || !slices.Contains(setups, r.baselines()[0]) {
				head = "time"
			}
			fmt.Fprintf(w, "\t%s\ttraps", head)
		}
		fmt.Fprintln(w)
		for _, s := range scenariosOf(groups, where) {
			if s == Transport {
				continue
			}
			fmt.Fprint(w, s)
			for _, setup := range setups {
				g := find(groups, where, s, setup)
				if g == nil {
					fmt.Fprint(w, "\t-\t-")
					continue
				}
				mark := ""
				if g.Partial {
					mark, partial = "*", true
				}
				text := ratioText(g.Ratio)
				if g.Ratio == nil || setup == r.baselines()[0] {
					text = seconds(g.Time.Median)
					alone = alone || setup != r.baselines()[0]
				}
				fmt.Fprintf(w, "\t%s%s\t%s", text, mark, count(g.Traps.Median))
			}
			fmt.Fprintln(w)
		}
		w.Flush()
		r.transport(b, groups, where)
	}
	fmt.Fprintf(b, "\nratio: time by that of %s, turn by turn; median, and the half width of its 95 %% interval (from 6 turns)\n", r.baselines()[0])
	if alone {
		fmt.Fprintf(b, "a time instead of a ratio: %s does not have the scenario\n", r.baselines()[0])
	}
	if partial {
		b.WriteString("*: not with all cases: what a guest maps is not trapped, and a whole card is not shared\n")
	}
}

// Transport is the scenario whose set-ups are transports: its baseline is a bare echo.
const Transport = "transport"

// transport writes the times of single accesses by transport, against the echo.
func (r *Run) transport(b *strings.Builder, groups []Group, where string) {
	if find(groups, where, Transport, "native") == nil {
		return
	}
	cases := slices.DeleteFunc(r.Groups(true), func(g Group) bool { return g.Scenario != Transport || g.Where != where })
	setups := setupsOf(cases, func(*Group) bool { return true })
	b.WriteString("\ntime of one access, and ratio to a bare echo\n")
	w := newTable(b)
	fmt.Fprintf(w, "access\t%s\n", strings.Join(setups, "\t"))
	var done []string
	for _, g := range cases {
		if slices.Contains(done, g.Case) {
			continue
		}
		done = append(done, g.Case)
		fmt.Fprint(w, g.Case)
		for _, s := range setups {
			text := "-"
			for i := range cases {
				if x := &cases[i]; x.Case == g.Case && x.Setup == s {
					text = seconds(x.Time.Median)
					if x.Ratio != nil && s != "echo" {
						text += "  " + ratioText(x.Ratio)
					}
				}
			}
			fmt.Fprintf(w, "\t%s", text)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// againstText writes one line for each scenario and set-up that two binaries measured.
func (r *Run) againstText(b *strings.Builder) {
	t := r.table()
	w := newTable(b)
	fmt.Fprintln(w, "where\tscenario\tset-up\ttime\tnew/old\ttraps\told traps")
	for _, g := range r.Groups(false) {
		var old [][]float64
		for _, k := range t.keys {
			if k.Binary == Old && k.Where == g.Where && k.Scenario == g.Scenario && k.Setup == g.Setup {
				old = append(old, t.by[k][Traps])
			}
		}
		oldTraps := "-"
		if len(old) > 0 {
			oldTraps = count(Summarize(sum(old)).Center)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Where, g.Scenario, g.Setup, seconds(g.Time.Median), ratioText(g.Ratio), count(g.Traps.Median), oldTraps)
	}
	w.Flush()
	b.WriteString("\nnew/old: ratio of the times, turn by turn; median, and the half width of its 95 % interval (from 6 turns)\n")
}

// units writes all medians: a line for each case and unit, a column for each set-up.
func (r *Run) units(b *strings.Builder) {
	t := r.table()
	var cases []string
	name := func(k Key) string {
		n := k.Where + "\t" + strings.TrimSuffix(k.Scenario+"/"+k.Case, "/")
		if k.Binary != "" {
			n += " (" + k.Binary + ")"
		}
		return n
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

func (r *Run) places(groups []Group) (out []string) {
	for i := range groups {
		if !slices.Contains(out, groups[i].Where) {
			out = append(out, groups[i].Where)
		}
	}
	return out
}

func setupsOf(groups []Group, in func(*Group) bool) (out []string) {
	for i := range groups {
		if g := &groups[i]; in(g) && !slices.Contains(out, g.Setup) {
			out = append(out, g.Setup)
		}
	}
	return out
}

func scenariosOf(groups []Group, where string) (out []string) {
	for i := range groups {
		if g := &groups[i]; g.Where == where && !slices.Contains(out, g.Scenario) {
			out = append(out, g.Scenario)
		}
	}
	return out
}

func find(groups []Group, where, scenario, setup string) *Group {
	for i := range groups {
		if g := &groups[i]; g.Where == where && g.Scenario == scenario && g.Setup == setup {
			return g
		}
	}
	return nil
}

// repetitions says how often the scenarios of a place were measured.
func repetitions(groups []Group, where string) string {
	least, most := math.MaxInt, 0
	for i := range groups {
		if groups[i].Where == where {
			least, most = min(least, groups[i].Time.N), max(most, groups[i].Time.N)
		}
	}
	if least == most {
		return fmt.Sprintf("%d turns", most)
	}
	return fmt.Sprintf("%d to %d turns", least, most)
}

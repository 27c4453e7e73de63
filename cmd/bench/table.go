package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"
)

// confidence of all intervals. It takes six repetitions.
const confidence = 0.95

func summary(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), confidence)
}

// hasInterval reports whether there were enough repetitions for one.
func hasInterval(s *benchmath.Summary) bool { return !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) }

// place is a line of the table.
type place struct{ title, name string }

func placeOf(k Key) place {
	if k.Where == machines {
		return place{"In virtual machines", k.Scenario}
	}
	return place{"In this process", k.Scenario}
}

// group is one set-up's part of a line.
type group struct {
	place
	setup       string
	partial     bool // it lacks cases that the set-up or the baseline does not have
	rounds      int
	time, traps benchmath.Summary
	ratio       *benchmath.Summary // to the baseline; nil if that has not measured it
}

// groups summarizes the run. Times and traps are sums of the cases. A ratio is of values of the same
// round, so what occupies the machine hits both, and the geometric mean of the cases.
func (r *Results) groups(base string) (out []group) {
	baseOf := func(k Key) []float64 {
		k.Setup = base
		return r.values[k][unitTime]
	}
	based := func(k Key) bool { return baseOf(k) != nil }
	for _, p := range distinct(r.keys, placeOf) {
		in := keep(r.keys, func(k Key) bool { return placeOf(k) == p })
		cases := distinct(in, func(k Key) string { return k.Case })
		for _, setup := range distinct(in, func(k Key) string { return k.Setup }) {
			mine := keep(in, func(k Key) bool { return k.Setup == setup })
			if slices.ContainsFunc(mine, based) {
				mine = keep(mine, based)
			}
			g := group{place: p, setup: setup, partial: len(mine) < len(cases), rounds: math.MaxInt}
			for _, k := range mine {
				if g.rounds = min(g.rounds, len(r.values[k][unitTime])); based(k) {
					g.rounds = min(g.rounds, len(baseOf(k)))
				}
			}
			times, traps, ratios := make([]float64, g.rounds), make([]float64, g.rounds), make([]float64, g.rounds)
			for i := range g.rounds {
				for _, k := range mine {
					times[i] += r.values[k][unitTime][i]
					if of := r.values[k][unitTraps]; i < len(of) {
						traps[i] += of[i]
					}
					if based(k) {
						ratios[i] += math.Log(r.values[k][unitTime][i]/baseOf(k)[i]) / float64(len(mine))
					}
				}
				ratios[i] = math.Exp(ratios[i])
			}
			g.time, g.traps = summary(times), summary(traps)
			if based(mine[0]) {
				s := summary(ratios)
				g.ratio = &s
			}
			out = append(out, g)
		}
	}
	return out
}

// keep returns the elements for which ok holds.
func keep[T any](list []T, ok func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !ok(v) })
}

func count(n float64) string {
	if n < 10_000 {
		return fmt.Sprintf("%.4g", n)
	}
	return benchunit.Scale(n, benchunit.Decimal)
}

// Text writes the results, a line for each scenario: time and traps of the baseline, then the ratio
// and the traps of each other set-up. base "" is pass-through.
func (r *Results) Text(w io.Writer, base string) error {
	base = cmp.Or(base, passThrough)
	var b strings.Builder
	groups := r.groups(base)
	var alone, partial, interval bool
	for _, title := range distinct(groups, func(g group) string { return g.title }) {
		here := keep(groups, func(g group) bool { return g.title == title })
		least := slices.MinFunc(here, func(a, b group) int { return cmp.Compare(a.rounds, b.rounds) }).rounds
		setups := distinct(here, func(g group) string { return g.setup })
		first := slices.Contains(setups, base)
		fmt.Fprintf(&b, "%s (%d rounds)\n", title, least)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "\t%s\t\nscenario", strings.Join(setups, "\t\t"))
		for _, s := range setups {
			what := "ratio"
			if s == base || !first {
				what = "time"
			}
			fmt.Fprintf(t, "\t%s\ttraps", what)
		}
		fmt.Fprintln(t)
		for _, name := range distinct(here, func(g group) string { return g.name }) {
			fmt.Fprint(t, name)
			for _, setup := range setups {
				i := slices.IndexFunc(here, func(g group) bool { return g.setup == setup && g.name == name })
				if i < 0 {
					fmt.Fprint(t, "\t-\t-")
					continue
				}
				g := &here[i]
				text := benchunit.Scale(g.time.Center, benchunit.Decimal) + "s"
				if isBase := setup == base; g.ratio != nil && !isBase {
					if text = fmt.Sprintf("%.2f", g.ratio.Center); hasInterval(g.ratio) {
						text, interval = text+" ±"+g.ratio.PctRangeString(), true
					}
				} else if !isBase {
					alone = true
				}
				if g.partial {
					text, partial = text+"*", true
				}
				fmt.Fprintf(t, "\t%s\t%s", text, count(g.traps.Center))
			}
			fmt.Fprintln(t)
		}
		t.Flush()
		b.WriteByte('\n')
	}
	about := "without an interval, which takes 6 rounds: other work on the machine may have doubled or halved it"
	if interval {
		about = "median, and the half width of its 95 % interval (from 6 rounds)"
	}
	fmt.Fprintf(&b, "ratio: time by that of %s, round by round; %s\n", base, about)
	b.WriteString("naive: a TLB invalidate scans all tables; trapped: only what changed; all: the guest also maps windows; umbra bench --list has more\n")
	if alone {
		fmt.Fprintf(&b, "a time in place of a ratio: %s does not have the scenario\n", base)
	}
	if partial {
		b.WriteString("*: only the cases that both have: a guest does not trap what it maps, and a whole card is not shared\n")
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "not measured: %s\n", e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// confidence of all intervals. It takes six repetitions.
const confidence = 0.95

func summary(values []float64) *benchmath.Summary {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), confidence)
	return &s
}

// hasInterval reports whether there were enough repetitions for one.
func hasInterval(s *benchmath.Summary) bool { return !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) }

// place is a line of the table: a scenario, in this process or in virtual machines.
type place struct{ where, scenario string }

// placeOf is the line of a key: each class of access has one of its own.
func placeOf(k Key) place {
	if k.Scenario == traps.name {
		return place{k.Where, k.Scenario + " " + k.Case}
	}
	return place{k.Where, k.Scenario}
}

// titles are of the tables.
var titles = map[string]string{process: "In this process", machines: "In virtual machines"}

// group is one set-up's part of a line.
type group struct {
	place
	setup       string
	partial     bool // it lacks cases that the set-up or the baseline does not have
	rounds      int
	time, traps *benchmath.Summary
	ratio       *benchmath.Summary // to the baseline; nil if that has not measured it
}

// groups summarizes the run.
func (r *Results) groups(base string) (out []group) {
	timed := keep(r.keys, func(k Key) bool { return k.Scenario != fairness.name }) // which takes the time that it is given
	for _, p := range distinct(timed, placeOf) {
		in := keep(timed, func(k Key) bool { return placeOf(k) == p })
		cases := distinct(in, func(k Key) string { return k.Case })
		for _, setup := range distinct(in, func(k Key) string { return k.Setup }) {
			mine := keep(in, func(k Key) bool { return k.Setup == setup })
			out = append(out, r.group(mine, len(cases), base))
		}
	}
	return out
}

// group summarizes a set-up's cases of a place, or those that the baseline has, too. The place has
// all cases. Times and traps are sums of the cases. A ratio is of values of the same round, so what
// occupies the machine hits both, and the geometric mean of the cases.
func (r *Results) group(cases []Key, all int, base string) group {
	g := group{place: placeOf(cases[0]), setup: cases[0].Setup}
	baseOf := func(k Key) []float64 {
		k.Setup = base
		return r.values[k][unitTime]
	}
	both := keep(cases, func(k Key) bool { return baseOf(k) != nil })
	based := len(both) > 0
	if based {
		cases = both
	}
	g.partial = len(cases) < all
	g.rounds = len(r.values[cases[0]][unitTime])
	for _, k := range cases {
		if g.rounds = min(g.rounds, len(r.values[k][unitTime])); based {
			g.rounds = min(g.rounds, len(baseOf(k)))
		}
	}
	times, traps, ratios := make([]float64, g.rounds), make([]float64, g.rounds), make([]float64, g.rounds)
	for i := range g.rounds {
		for _, k := range cases {
			v := r.values[k]
			times[i] += v[unitTime][i]
			if i < len(v[unitTraps]) {
				traps[i] += v[unitTraps][i]
			}
			if based {
				ratios[i] += math.Log(v[unitTime][i]/baseOf(k)[i]) / float64(len(cases))
			}
		}
		ratios[i] = math.Exp(ratios[i])
	}
	g.time, g.traps = summary(times), summary(traps)
	if based {
		g.ratio = summary(ratios)
	}
	return g
}

// keep returns the elements for which ok holds.
func keep[T any](list []T, ok func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !ok(v) })
}

// distinct returns the distinct names of a list, in order.
func distinct[T any, N comparable](list []T, name func(T) N) (out []N) {
	for _, v := range list {
		if n := name(v); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// what is the group's time, or its ratio to another set-up that is the baseline.
func (g *group) what(base string) string {
	text := timeText(g.time.Center)
	if g.ratio != nil && g.setup != base {
		if text = fmt.Sprintf("%.2f", g.ratio.Center); hasInterval(g.ratio) {
			text += " ±" + percentText(g.ratio)
		}
	}
	if g.partial {
		text += "*"
	}
	return text
}

// percentText is how far the ends of an interval are from its centre. More than ten times that says no more than the bound.
func percentText(s *benchmath.Summary) string {
	const most = "999%"
	if text := s.PctRangeString(); len(text) <= len(most) {
		return text
	}
	return ">" + most
}

// Text writes the results, a line for each scenario: the time of the baseline and the ratio of each other set-up, then the
// traps of all. base "" is pass-through.
func (r *Results) Text(w io.Writer, base string) error {
	base = cmp.Or(base, passThrough)
	var b strings.Builder
	r.header(&b)
	groups := r.groups(base)
	for _, where := range distinct(groups, func(g group) string { return g.where }) {
		here := keep(groups, func(g group) bool { return g.where == where })
		keys := keep(r.keys, func(k Key) bool { return k.Where == where && k.Scenario != fairness.name })
		least := slices.MinFunc(here, func(a, b group) int { return cmp.Compare(a.rounds, b.rounds) }).rounds
		title := fmt.Sprintf("%s (%d rounds): time", titles[where], least)
		if slices.ContainsFunc(here, func(g group) bool { return g.setup == base }) {
			title += fmt.Sprintf(" of %s, and the ratio to it", base)
		}
		var times, trapped []row
		for _, name := range distinct(here, func(g group) string { return g.scenario }) {
			cell := func(text func(*group) string) row {
				return row{name, func(setup string) string {
					i := slices.IndexFunc(here, func(g group) bool { return g.setup == setup && g.scenario == name })
					if i < 0 {
						return "-"
					}
					return text(&here[i])
				}}
			}
			times = append(times, cell(func(g *group) string { return g.what(base) }))
			if !strings.HasPrefix(name, traps.name) { // which is one each
				trapped = append(trapped, cell(func(g *group) string { return countText(g.traps.Center) }))
			}
		}
		grid(&b, title, keys, times)
		grid(&b, titles[where]+": traps", keys, trapped)
	}
	for _, more := range []func(*strings.Builder, string){r.steps, r.scans, r.shares} {
		more(&b, base)
	}
	r.legend(&b, base, groups)
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "not measured: %s\n", e)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package result

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence of all intervals. It takes six repetitions.
const confidence = 0.95

// Summarize returns the median of repetitions with its interval.
func Summarize(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), confidence)
}

// sum adds up the cases round by round, over the rounds that all cases have.
func sum(cases [][]float64) []float64 {
	return fold(cases, func(total, v float64) float64 { return total + v })
}

// fold combines the cases round by round.
func fold(cases [][]float64, with func(a, b float64) float64) (out []float64) {
	for i, values := range cases {
		if i == 0 {
			out = slices.Clone(values)
			continue
		}
		out = out[:min(len(out), len(values))]
		for round := range out {
			out[round] = with(out[round], values[round])
		}
	}
	return out
}

// ratios returns the geometric mean, over the cases, of values by base: one ratio for each round.
// The two values of a ratio are of the same round, so what occupies the machine hits both.
func ratios(values, base [][]float64) []float64 {
	var logs [][]float64
	for i := range values {
		n := min(len(values[i]), len(base[i]))
		of := make([]float64, n)
		for round := range n {
			of[round] = math.Log(values[i][round]/base[i][round]) / float64(len(values))
		}
		logs = append(logs, of)
	}
	out := sum(logs)
	for round := range out {
		out[round] = math.Exp(out[round])
	}
	return out
}

// Group is the results of some cases with one set-up: of a scenario, or of one case.
type Group struct {
	Where    string
	Scenario string
	Case     string
	Setup    string
	Cases    int
	// Partial says that the group lacks cases of the scenario: those that the set-up or the
	// baseline does not have.
	Partial bool
	Time    Spread  // sum of the cases
	Ratio   *Spread // to the baseline: geometric mean of the cases
	Traps   Spread  // sum of the cases
	// Metrics are all units of a single case, as in the file.
	Metrics map[string]Spread
}

// Spread is the median of repetitions. Low and High are the ends of its 95 % interval; they are
// missing with fewer than six repetitions.
type Spread struct {
	Median float64
	Low    *float64
	High   *float64
	N      int

	text string // of the interval, such as "± 3%"
}

func spread(values []float64, factor float64) Spread {
	s := Summarize(values)
	out := Spread{Median: s.Center * factor, N: len(values), text: s.PctRangeString()}
	if !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) {
		lo, hi := s.Lo*factor, s.Hi*factor
		out.Low, out.High = &lo, &hi
	}
	return out
}

// baselines are the set-ups that others are compared with, the first one that is there.
func (r *Run) baselines() []string {
	return []string{cmp.Or(r.Base, "pass-through"), "echo", "native"}
}

// Groups summarizes the run by scenario and set-up, or by case and set-up.
func (r *Run) Groups(byCase bool) (out []Group) {
	t := r.table()
	type part struct{ where, scenario, name string }
	var parts []part
	for _, k := range t.keys {
		p := part{k.Where, k.Scenario, ""}
		if byCase {
			p.name = k.Case
		}
		if !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	for _, p := range parts {
		in := func(k Key) bool {
			return k.Where == p.where && k.Scenario == p.scenario && (!byCase || k.Case == p.name)
		}
		all := len(distinct(t.keys, in, func(k Key) string { return k.Case }))
		for _, setup := range distinct(t.keys, in, func(k Key) string { return k.Setup }) {
			g := Group{Where: p.where, Scenario: p.scenario, Case: p.name, Setup: setup}
			mine := slices.DeleteFunc(slices.Clone(t.keys), func(k Key) bool { return !in(k) || k.Setup != setup })
			based := func(k Key) bool { return t.baseline(k, r.baselines()) != nil }
			if slices.ContainsFunc(mine, based) {
				mine = slices.DeleteFunc(mine, func(k Key) bool { return !based(k) })
			}
			g.Cases = len(mine)
			var times, traps, base [][]float64
			for _, k := range mine {
				times, traps = append(times, t.by[k][Time]), append(traps, t.by[k][Traps])
				if based(k) {
					base = append(base, t.baseline(k, r.baselines()))
				}
				if byCase {
					g.Metrics = map[string]Spread{}
					for u, v := range t.by[k] {
						g.Metrics[u] = spread(v, 1)
					}
				}
			}
			g.Partial = g.Cases < all
			g.Time, g.Traps = spread(sum(times), 1e9), spread(sum(traps), 1)
			if len(base) > 0 {
				s := spread(ratios(times, base), 1)
				g.Ratio = &s
			}
			out = append(out, g)
		}
	}
	return out
}

// baseline returns the times that those of a key are compared with, nil for none.
func (t *table) baseline(k Key, baselines []string) []float64 {
	for _, b := range baselines {
		k.Setup = b
		if v := t.by[k][Time]; v != nil {
			return v
		}
	}
	return nil
}

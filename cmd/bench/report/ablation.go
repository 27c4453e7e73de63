package report

import (
	"math"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// Ablation is what a set-up costs over all cases that every set-up of the run
// went through: sums of medians, and the ratios of the cases.
type Ablation struct {
	Setup  string
	Cases  int
	NS     float64
	Counts map[string]float64 // those that every case has
	// Mean is the geometric mean of the cases' ratios to pass-through, Worst the
	// largest of them, of the case WorstCase; 0 without pass-through.
	Mean, Worst float64
	WorstCase   string
	// SameMean and SameWorst are the ratios to the whole card of which as much is
	// mapped, of all cases and of the worst scenario, SameWorstOf; 0 if it was not
	// measured, or nothing is mapped. They are geometric means, for a scenario has few
	// or many cases, and each of them its own noise.
	SameMean, SameWorst float64
	SameWorstOf         string
	// NaiveMean is the ratio of the naive set-up to this one; 0 if it was not measured,
	// and for itself.
	NaiveMean float64
}

// Set-ups that others are told by: Naive stands for full virtualization, All has what
// takes the traps away together, AllPoll the doorbells' too.
const (
	Naive   = "naive"
	All     = "all"
	AllPoll = "all+poll"
)

// means are geometric means of ratios, of all cases and by scenario.
type means struct {
	all       mean
	scenarios []string
	by        map[string]mean
}

type mean struct {
	logs float64
	n    int
}

func (m mean) add(v float64) mean { return mean{m.logs + math.Log(v), m.n + 1} }

// value is 0 for none.
func (m mean) value() float64 {
	if m.n == 0 {
		return 0
	}
	return math.Exp(m.logs / float64(m.n))
}

func (m *means) add(scenario string, v float64) {
	if m.by == nil {
		m.by = map[string]mean{}
	}
	if m.by[scenario].n == 0 {
		m.scenarios = append(m.scenarios, scenario)
	}
	m.all, m.by[scenario] = m.all.add(v), m.by[scenario].add(v)
}

// worst is the largest of the scenarios' means.
func (m *means) worst() (v float64, scenario string) {
	for _, s := range m.scenarios {
		if x := m.by[s].value(); x > v {
			v, scenario = x, s
		}
	}
	return v, scenario
}

// Options that say what a guest may map, of a virtual GPU and of the whole card.
const (
	OptMap      = "gpu.bar-map"
	OptWholeMap = "card.bar-map"
)

// sameMap is the whole card with the mapping of a virtual GPU, or "".
func (r *Report) sameMap(s *Setup) string {
	if m := s.Options[OptMap]; s.Whole || m == "" || m == "none" {
		return ""
	}
	for _, x := range r.Setups {
		if x.Whole && x.Options[OptWholeMap] == s.Options[OptMap] {
			return x.Name
		}
	}
	return ""
}

// ratioTo is the median ratio of the total times, turn by turn.
func (x *Result) ratioTo(y *Result) (float64, bool) {
	if y == nil || len(x.Total.NS.Values) != len(y.Total.NS.Values) {
		return 0, false
	}
	var ratios []float64
	for i, v := range x.Total.NS.Values {
		if b := y.Total.NS.Values[i]; b > 0 {
			ratios = append(ratios, v/b)
		}
	}
	m := stats.Median(ratios)
	return m, m > 0
}

// pair is two set-ups of which one is told by the other.
type pair struct{ setup, by string }

// pairs are those that the demands are about: what as much mapped costs with and
// without anything in between, and how far full virtualization is from both ends.
func (r *Report) pairs(where string) (out []pair) {
	there := map[string]bool{}
	for i := range r.Results {
		if r.Results[i].Where == where {
			there[r.Results[i].Setup] = true
		}
	}
	for i := range r.Setups {
		if s := &r.Setups[i]; there[s.Name] && there[r.sameMap(s)] {
			out = append(out, pair{s.Name, r.sameMap(s)})
		}
	}
	for _, by := range []string{PassThrough, All} {
		if there[Naive] && there[by] {
			out = append(out, pair{Naive, by})
		}
	}
	return out
}

// scenarioRatio is the geometric mean of the ratios of a scenario's cases that both of
// a pair ran; 0 if there are none.
func (r *Report) scenarioRatio(where, scenario string, p pair) float64 {
	var m mean
	for i := range r.Results {
		x := &r.Results[i]
		if x.Where != where || x.Scenario != scenario || x.Setup != p.setup {
			continue
		}
		if v, ok := x.ratioTo(r.Find(where, scenario, x.Case, p.by)); ok {
			m = m.add(v)
		}
	}
	return m.value()
}

// ByPassThrough is the geometric mean of the ratios to pass-through of a scenario's cases with a
// set-up; 0 if there are none.
func (r *Report) ByPassThrough(where, scenario, setup string) float64 {
	var m mean
	for i := range r.Results {
		if x := &r.Results[i]; x.Where == where && x.Scenario == scenario && x.Setup == setup && x.Ratio != nil {
			m = m.add(x.Ratio.Median)
		}
	}
	return m.value()
}

// Ablation sums up one place of measurement, set-up by set-up.
func (r *Report) Ablation(where string) []Ablation {
	type key struct{ scenario, name string }
	var keys []key
	with := map[key]int{}
	setups := map[string]bool{}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Where != where {
			continue
		}
		k := key{x.Scenario, x.Case}
		if with[k]++; with[k] == 1 {
			keys = append(keys, k)
		}
		setups[x.Setup] = true
	}
	var out []Ablation
	for _, s := range r.Setups {
		if !setups[s.Name] {
			continue
		}
		a := Ablation{Setup: s.Name}
		var ratios, naive mean
		var sames means
		same := r.sameMap(&s)
		for _, k := range keys {
			if with[k] != len(setups) {
				continue
			}
			x := r.Find(where, k.scenario, k.name, s.Name)
			a.NS += x.Total.NS.Median
			if a.Cases++; a.Cases == 1 {
				a.Counts = map[string]float64{}
				for n := range x.Total.Counts {
					a.Counts[n] = 0
				}
			}
			for n := range a.Counts {
				if c, ok := x.Total.Counts[n]; ok {
					a.Counts[n] += c.Median
				} else {
					delete(a.Counts, n)
				}
			}
			if v, ok := x.ratioTo(r.Find(where, k.scenario, k.name, same)); ok {
				sames.add(k.scenario, v)
			}
			if y := r.Find(where, k.scenario, k.name, Naive); y != nil && s.Name != Naive {
				if v, ok := y.ratioTo(x); ok {
					naive = naive.add(v)
				}
			}
			if x.Ratio != nil {
				ratios = ratios.add(x.Ratio.Median)
				if x.Ratio.Median > a.Worst {
					a.Worst, a.WorstCase = x.Ratio.Median, k.scenario+", "+k.name
				}
			}
		}
		a.Mean, a.SameMean, a.NaiveMean = ratios.value(), sames.all.value(), naive.value()
		a.SameWorst, a.SameWorstOf = sames.worst()
		if a.Cases > 0 {
			out = append(out, a)
		}
	}
	return out
}

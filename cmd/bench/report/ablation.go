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
	// mapped; 0 if it was not measured, or nothing is mapped.
	SameMean, SameWorst float64
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
		logs, ratios := 0.0, 0
		sameLogs, sames, same := 0.0, 0, r.sameMap(&s)
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
				sameLogs += math.Log(v)
				sames++
				a.SameWorst = max(a.SameWorst, v)
			}
			if x.Ratio != nil {
				logs += math.Log(x.Ratio.Median)
				ratios++
				if x.Ratio.Median > a.Worst {
					a.Worst, a.WorstCase = x.Ratio.Median, k.scenario+", "+k.name
				}
			}
		}
		if ratios > 0 {
			a.Mean = math.Exp(logs / float64(ratios))
		}
		if sames > 0 {
			a.SameMean = math.Exp(sameLogs / float64(sames))
		}
		if a.Cases > 0 {
			out = append(out, a)
		}
	}
	return out
}

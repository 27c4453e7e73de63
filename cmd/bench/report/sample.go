package report

import (
	"maps"
	"slices"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// Sample is one repetition of a case with one set-up.
type Sample struct {
	Phases  []PhaseSample
	Figures []FigureSample
}

// PhaseSample is one phase of one repetition.
type PhaseSample struct {
	Name   string
	NS     float64
	Counts map[string]float64
}

// FigureSample is one figure of one repetition.
type FigureSample struct {
	Name  string
	Unit  Unit
	Value float64
}

// Total is the sum of the phases.
func (s *Sample) Total() PhaseSample {
	out := PhaseSample{Name: "total", Counts: map[string]float64{}}
	for _, p := range s.Phases {
		out.NS += p.NS
		for k, v := range p.Counts {
			out.Counts[k] += v
		}
	}
	return out
}

// Sum fills the measured parts of a result from its samples, one a turn. base are
// those of pass-through of the same turns, or none.
func (r *Result) Sum(samples, base []Sample) {
	phases := map[string][]PhaseSample{}
	figures := map[string][]float64{}
	var totals []PhaseSample
	for i := range samples {
		for _, p := range samples[i].Phases {
			if phases[p.Name] == nil {
				r.Phases = append(r.Phases, Phase{Name: p.Name})
			}
			phases[p.Name] = append(phases[p.Name], p)
		}
		for _, f := range samples[i].Figures {
			if figures[f.Name] == nil {
				r.Figures = append(r.Figures, Figure{Name: f.Name, Unit: f.Unit})
			}
			figures[f.Name] = append(figures[f.Name], f.Value)
		}
		totals = append(totals, samples[i].Total())
	}
	for i := range r.Phases {
		r.Phases[i] = phaseOf(phases[r.Phases[i].Name])
	}
	for i := range r.Figures {
		r.Figures[i].Value = stats.Of(figures[r.Figures[i].Name])
	}
	r.Total = phaseOf(totals)
	if len(base) == len(samples) && len(base) > 0 {
		var ratios []float64
		for i := range samples {
			if b := base[i].Total().NS; b > 0 {
				ratios = append(ratios, totals[i].NS/b)
			}
		}
		if len(ratios) > 0 {
			s := stats.Of(ratios)
			r.Ratio = &s
		}
	}
}

// phaseOf sums up the samples of one phase. A count is there if every sample has it.
func phaseOf(samples []PhaseSample) Phase {
	out := Phase{Name: samples[0].Name, Counts: map[string]stats.Summary{}}
	var ns []float64
	for _, s := range samples {
		ns = append(ns, s.NS)
	}
	out.NS = stats.Of(ns)
	for _, k := range slices.Sorted(maps.Keys(samples[0].Counts)) {
		var values []float64
		for _, s := range samples {
			if v, ok := s.Counts[k]; ok {
				values = append(values, v)
			}
		}
		if len(values) == len(samples) {
			out.Counts[k] = stats.Of(values)
		}
	}
	return out
}

package bench

import (
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// modelTerms are what a phase's time is explained by.
var modelTerms = []report.Term{
	{Name: "a phase, whatever happens in it"},
	{Name: "a trapped read", Count: report.Reads},
	{Name: "a trapped write", Count: report.Writes},
	{Name: "a scan", Count: report.Scans},
	{Name: "an entry examined", Count: report.Examined},
}

// enough phases for each term, below which a fit says nothing.
const enough = 8

// fit explains the time of phases by what was counted in them. The squares are of
// shares, not of nanoseconds: a phase of a millisecond says as much as one of a
// second. Terms that nothing in the run has are left out; with entries examined
// in step with scans, as a table that never changes its size has them, the scan
// alone stays. Too few
// phases have no model.
func fit(samples []report.Sample) (*report.Model, error) {
	var x [][]float64
	var y, w []float64
	terms := make([]report.Term, 0, len(modelTerms))
	for _, t := range modelTerms {
		for i := range samples {
			if t.Count == "" || samples[i].Total().Counts[t.Count] > 0 {
				terms = append(terms, t)
				break
			}
		}
	}
	for ; len(terms) > 0; terms = terms[:len(terms)-1] {
		x, y, w = x[:0], y[:0], w[:0]
		for i := range samples {
			for _, p := range samples[i].Phases {
				row := make([]float64, len(terms))
				for j, t := range terms {
					row[j] = 1
					if t.Count != "" {
						row[j] = p.Counts[t.Count]
					}
				}
				x, y, w = append(x, row), append(y, p.NS), append(w, 1/p.NS)
			}
		}
		if len(x) < enough*len(terms) {
			return nil, nil
		}
		f, err := stats.Fit(x, y, w)
		if err != nil {
			continue
		}
		for j := range terms {
			terms[j].NS = f.Coefficients[j]
		}
		return &report.Model{Terms: terms, Residual: f.Residual, R2: f.R2, N: len(x)}, nil
	}
	return nil, fmt.Errorf("%w: %d phases", stats.ErrDegenerate, len(x))
}

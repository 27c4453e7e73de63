package bench

import (
	"errors"
	"math"
	"slices"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// What a phase's time is explained by, beside what it takes whatever the set-up.
var (
	// Of what was measured meanwhile: the socket's part by counts, the device's and the
	// shadows' by their time.
	measuredTerms = []report.Term{
		{Name: "a time that the server finds something in its socket", Count: report.Wakes},
		{Name: "a message", Count: report.Messages},
		{Name: "a nanosecond in traps", Count: report.TrapNS},
		{Name: "a nanosecond in shadows", Count: report.ShadowNS},
	}
	// Of counts alone.
	countedTerms = []report.Term{
		{Name: "a time that the server finds something in its socket", Count: report.Wakes},
		{Name: "a message", Count: report.Messages},
		{Name: "a page moved", Count: report.MapPages},
		{Name: "a scan", Count: report.Scans},
		{Name: "an entry examined", Count: report.Examined},
	}
)

// enough phases for each coefficient, below which a fit says nothing.
const enough = 3

// point is the median of one phase of a case with one set-up.
type point struct {
	phase string // of which case
	ns    float64
	count func(name string) float64
}

func points(results []report.Result) (out []point) {
	for i := range results {
		x := &results[i]
		for k := range x.Phases {
			p := &x.Phases[k]
			out = append(out, point{
				phase: x.Scenario + ", " + x.Case + ", " + p.Name, ns: p.NS.Median,
				count: func(name string) float64 { return p.Counts[name].Median },
			})
		}
	}
	return out
}

// fit explains the time of phases. Each case's phase has a time of its own, the same
// with every set-up: what its guest does itself, which no count tells. The squares are
// of shares, not of nanoseconds: a phase of a millisecond says as much as one of a
// second. Terms that nothing in the run has are left out; with entries examined in step
// with scans, as a table that never changes its size has them, the scan alone stays.
// Too few phases have no model.
func fit(data []point, all []report.Term) (*report.Model, error) {
	var own []report.Own
	for _, p := range data {
		if !slices.ContainsFunc(own, func(o report.Own) bool { return o.Phase == p.phase }) {
			own = append(own, report.Own{Phase: p.phase})
		}
	}
	terms := slices.DeleteFunc(slices.Clone(all), func(t report.Term) bool {
		return !slices.ContainsFunc(data, func(p point) bool { return p.count(t.Count) > 0 })
	})
	for ; len(terms) > 0; terms = terms[:len(terms)-1] {
		columns := len(terms) + len(own)
		if len(data) < enough*columns {
			return nil, nil
		}
		var x [][]float64
		var y, w []float64
		for _, p := range data {
			row := make([]float64, columns)
			for j, t := range terms {
				row[j] = p.count(t.Count)
			}
			row[len(terms)+slices.IndexFunc(own, func(o report.Own) bool { return o.Phase == p.phase })] = 1
			x, y, w = append(x, row), append(y, p.ns), append(w, 1/p.ns)
		}
		f, err := stats.Fit(x, y, w)
		if errors.Is(err, stats.ErrDegenerate) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for j := range terms {
			terms[j].NS = f.Coefficients[j]
		}
		for j := range own {
			own[j].NS = f.Coefficients[len(terms)+j]
		}
		// So many coefficients would fit some of any noise.
		left := f.Residual * math.Sqrt(float64(len(data))/float64(len(data)-columns))
		return &report.Model{Terms: terms, Own: own, Residual: left, R2: f.R2, N: len(data)}, nil
	}
	return nil, stats.ErrDegenerate
}

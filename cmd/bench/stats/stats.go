// Package stats sums up repeated measurements: medians, quartiles, the median
// absolute deviation, and a least-squares fit. Medians, because on a machine that
// others use too a mean measures the others.
//
// The package is pure: no state, locks or goroutines.
package stats

import (
	"math"
	"slices"
)

// Summary describes repeated measurements of one thing.
type Summary struct {
	N      int       `json:"n"`
	Median float64   `json:"median"`
	MAD    float64   `json:"mad"` // median absolute deviation from the median
	Q1     float64   `json:"q1"`
	Q3     float64   `json:"q3"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"` // in the order in which they were taken
}

// Of sums values up. Without values it is the zero Summary.
func Of(values []float64) Summary {
	s := Summary{N: len(values), Values: slices.Clone(values)}
	if s.N == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(values))
	s.Min, s.Max = sorted[0], sorted[s.N-1]
	s.Q1, s.Median, s.Q3 = Quantile(sorted, 0.25), Quantile(sorted, 0.5), Quantile(sorted, 0.75)
	away := make([]float64, s.N)
	for i, v := range values {
		away[i] = math.Abs(v - s.Median)
	}
	s.MAD = Median(away)
	return s
}

// Median of values, in any order. It is 0 for none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return Quantile(slices.Sorted(slices.Values(values)), 0.5)
}

// Quantile p (0 to 1) of sorted values, between two of them in proportion.
func Quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// EnoughForInterval is below how many values no two of them hold the median 19 times
// in 20, whatever they are.
const EnoughForInterval = 6

// Interval returns two of the values between which the median of what was measured
// lies, 19 times in 20 or more, whatever its distribution: as many values lie below
// it as heads come up. ok is false if there are too few values for that.
func (s *Summary) Interval() (low, high float64, ok bool) {
	count := len(s.Values) // not N: a summary that was read may say another number
	if count < EnoughForInterval {
		return 0, 0, false
	}
	// k is the most values at either end that may be left out: P(heads < k) is 2.5 % at
	// most.
	n := float64(count)
	lg, _ := math.Lgamma(n + 1)
	k, below := 0, 0.0
	for {
		a, _ := math.Lgamma(float64(k) + 1)
		b, _ := math.Lgamma(n - float64(k) + 1)
		below += math.Exp(lg - a - b - n*math.Ln2)
		if below > 0.025 {
			break
		}
		k++
	}
	sorted := slices.Sorted(slices.Values(s.Values))
	return sorted[k-1], sorted[count-k], true
}

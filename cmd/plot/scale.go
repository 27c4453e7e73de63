package plot

import "math"

// scale turns values into places on an axis.
type scale struct {
	from, to float64 // values
	a, b     float64 // places
	log      bool
}

// spread is how far values must lie apart for an axis to be logarithmic.
const spreadForLog = 30

// newScale covers values from a place to another. All of them above 0 and far
// apart make it logarithmic; else it begins at 0.
func newScale(values []float64, a, b float64, zero bool) scale {
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		least, most = min(least, v), max(most, v)
	}
	s := scale{a: a, b: b}
	switch {
	case len(values) == 0 || most <= 0 && least >= 0:
		s.to = 1
	case least > 0 && most/least > spreadForLog && !zero:
		s.log = true
		s.from, s.to = math.Pow(10, math.Floor(math.Log10(least))), nice(most)
	default:
		s.from, s.to = min(0, least), max(nice(most), 0)
		if least < 0 {
			s.from = -nice(-least)
		}
	}
	return s
}

// newRatioScale covers ratios, of which half as much is as far from mark as twice
// as much.
func newRatioScale(values []float64, mark, a, b float64) scale {
	least, most := mark, mark
	for _, v := range values {
		if v > 0 {
			least, most = min(least, v), max(most, v)
		}
	}
	return scale{from: 1 / nice(1/least), to: nice(most * 1.0001), a: a, b: b, log: true}
}

// nice is the next number at or above v of those that people like to read.
func nice(v float64) float64 {
	if v <= 0 {
		return 0
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if m*p >= v*(1-1e-9) {
			return m * p
		}
	}
	return 10 * p
}

// at is the place of a value. What is off the axis lies at its end.
func (s scale) at(v float64) float64 {
	from, to := s.from, s.to
	v = min(max(v, from), to)
	if s.log {
		from, to, v = math.Log10(from), math.Log10(to), math.Log10(v)
	}
	return s.a + (v-from)/(to-from)*(s.b-s.a)
}

// ticks are the values that the axis names.
func (s scale) ticks() (out []float64) {
	if s.log {
		steps := []float64{1}
		if s.to/s.from < 1e3 {
			steps = []float64{1, 3}
		}
		decades := math.Pow(10, max(1, math.Ceil(math.Log10(s.to/s.from)/10))) // ten of them are enough
		if s.to/s.from < 20 {
			steps = []float64{1, 2, 5}
		}
		for p := math.Pow(10, math.Floor(math.Log10(s.from)+1e-9)); p <= s.to*(1+1e-9); p *= decades {
			for _, m := range steps {
				if p*m >= s.from*(1-1e-9) && p*m <= s.to*(1+1e-9) {
					out = append(out, p*m)
				}
			}
		}
		return out
	}
	step := nice((s.to - s.from) / 6)
	for v := math.Ceil(s.from/step) * step; v <= s.to+step*1e-9; v += step {
		if math.Abs(v) < step*1e-9 {
			v = 0
		}
		out = append(out, v)
	}
	return out
}

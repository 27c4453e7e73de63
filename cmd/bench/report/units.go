package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// ShowTime writes nanoseconds with three digits.
func ShowTime(ns float64) string {
	for _, u := range []struct {
		from float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}} {
		if math.Abs(ns) >= u.from*0.9995 {
			return digits(ns/u.from) + " " + u.name
		}
	}
	return digits(ns) + " ns"
}

// digits writes three of a number below 1,000.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 9.995:
		return fmt.Sprintf("%.2f", v)
	case a < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// ShowCount writes a count, with commas where there are many digits.
func ShowCount(v float64) string {
	s := strconv.FormatFloat(math.Round(math.Abs(v)), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 && s != "0" {
		return "-" + s
	}
	return s
}

// HowMany writes a number of things.
func HowMany(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Show writes a value of the unit.
func (u Unit) Show(v float64) string {
	switch u {
	case Nanoseconds:
		return ShowTime(v)
	case BytesPerSecond:
		if v < 1e9 {
			return digits(v/1e6) + " MB/s"
		}
		return digits(v/1e9) + " GB/s"
	case Share:
		return fmt.Sprintf("%.1f %%", v*100)
	case EachSecond:
		return ShowCount(v) + "/s"
	}
	return digits(v)
}

// spread writes the median absolute deviation as a share of the median.
func spread(s stats.Summary) string {
	if s.N < 2 || s.Median == 0 {
		return none
	}
	return fmt.Sprintf("±%.0f%%", math.Abs(s.MAD/s.Median)*100)
}

// ShowRatio writes a ratio.
func ShowRatio(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.2f", v)
	}
	return ShowCount(v)
}

package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A scale keeps its values inside and in order, and names round numbers that it
// has.
func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(-1e3, 1e3), rapid.Float64Range(1e-3, 1e12)), 0, 8).Draw(t, "values")
		for i, v := range values {
			if math.Abs(v) < 1e-9 { // nothing is measured that small
				values[i] = 0
			}
		}
		s := newScale(values, 100, 700, rapid.Bool().Draw(t, "zero"))
		if rapid.Bool().Draw(t, "ratio") {
			s = newRatioScale(values, 1, 100, 700)
		}
		slices.Sort(values)
		last := 100.0
		for _, v := range values {
			at := s.at(v)
			require.True(t, at >= last && at <= 700, "%v of %v lies at %v", v, values, at)
			last = at
		}
		ticks := s.ticks()
		require.NotEmpty(t, ticks)
		require.LessOrEqual(t, len(ticks), 20)
		require.True(t, slices.IsSorted(ticks))
		for _, v := range ticks {
			most := max(math.Abs(s.from), math.Abs(s.to)) * 1e-6
			require.True(t, v >= s.from-most && v <= s.to+most, "%v is not on the axis %v", v, s)
		}
	})
}

func TestNice(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 0.9: 1, 1: 1, 1.2: 1.5, 7: 8, 8.5: 10, 1234: 1500, 0.0021: 0.003} {
		require.InDelta(t, want, nice(v), want*1e-9)
	}
	require.Equal(t, 1e6, math.Round(nice(999_999)))
}

func TestTidy(t *testing.T) {
	for in, want := range map[string]string{"3.00 ms": "3 ms", "1.50 us": "1.5 us", "30.00": "30", "300 MB/s": "300 MB/s", "100.0 %": "100 %", "1,000": "1,000"} {
		require.Equal(t, want, tidy(in))
	}
}

// Each colour is in the style, for areas, for lines and for parts, in the light and in the dark.
func TestColours(t *testing.T) {
	for i := range Colours {
		for text, times := range map[string]int{fmt.Sprintf("--s%d: #", i): 2, fmt.Sprintf("\n.s%d {", i): 1, fmt.Sprintf("\nsvg .line.s%d {", i): 1, fmt.Sprintf("\n.p%d {", i): 1} {
			require.Equal(t, times, strings.Count(parts, text), text)
		}
	}
}

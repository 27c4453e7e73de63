package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// ComparedValue is one value of a case in this run and in the one before.
type ComparedValue struct {
	Name      string  // of the figure, or that of the time
	Then, Now string  // as they are shown
	Ratio     float64 // of the medians, now by then; 0 if one of them is not above zero
	Better    string  // "less" or "more"; "" of a figure that nobody has described
	Verdict   Verdict
}

// endToEnd is what the time of a whole case is called among its figures.
const endToEnd = "time, end to end"

// Verdict says of a value whether it is another one than before.
type Verdict int

// The verdicts. Times and rates get faster or slower, and shares and numbers better or worse;
// of what nobody has said which way is better it is said which way it went.
const (
	Within Verdict = iota // it differs as repetitions do
	TooFew                // repetitions to tell
	Faster
	Slower
	Improved
	Worsened
	Higher
	Lower
)

func (v Verdict) String() string {
	return []string{"within the spread", "too few to tell", "faster", "slower", "better", "worse", "higher", "lower"}[v]
}

// fewest is how many repetitions each of two runs has to have for a difference to be told from
// chance. TestVerdicts holds it against stats.Apart.
const fewest = 4

// AboutComparison says how to read a comparison, in sentences.
var AboutComparison = []string{
	"Medians then and now, and now by then; under better stands whether less or more of it is better.",
	"Faster or slower, better or worse: the repetitions in the two runs lie further apart than those of one and the same thing would in one of twenty cases.",
	"Within the spread: no further than repetitions differ by themselves.",
	fmt.Sprintf("Too few to tell: to say either takes %d repetitions in each run (--repeat, --boots).", fewest),
}

// verdict compares the repetitions of a value of which it is known, or not, whether more is better.
func verdict(now, then *stats.Summary, unit Unit, c *Column) Verdict {
	side, enough := stats.Apart(now.Values, then.Values)
	if !enough {
		return TooFew
	}
	if side == 0 {
		return Within
	}
	more := side > 0
	rate := unit == BytesPerSecond || unit == EachSecond
	switch {
	case unit == Nanoseconds || rate:
		if more == rate {
			return Faster
		}
		return Slower
	case c == nil && more:
		return Higher
	case c == nil:
		return Lower
	case more == bool(c.Better):
		return Improved
	default:
		return Worsened
	}
}

// values compares the time of a case, and each figure that both results have in the same unit.
func values(now, then *Result) (out []ComparedValue) {
	a, b := &now.Total.NS, &then.Total.NS
	out = append(out, ComparedValue{endToEnd, ShowTime(b.Median), ShowTime(a.Median), ratioOf(a, b), Less.String(), verdict(a, b, Nanoseconds, nil)})
	for i := range now.Figures {
		f := &now.Figures[i]
		g := then.figure(f.Name)
		if g == nil || g.Unit != f.Unit {
			continue
		}
		c := ColumnOf(now.Scenario, now.Where, f.Name, true)
		better := ""
		switch {
		case c != nil:
			better = c.Better.String()
		case f.Unit == Nanoseconds:
			better = Less.String()
		case f.Unit == BytesPerSecond || f.Unit == EachSecond:
			better = More.String()
		}
		out = append(out, ComparedValue{f.Name, then.Show(g), now.Show(f), ratioOf(&f.Value, &g.Value), better, verdict(&f.Value, &g.Value, f.Unit, c)})
	}
	return out
}

func ratioOf(now, then *stats.Summary) float64 {
	if now.Median <= 0 || then.Median <= 0 {
		return 0
	}
	return now.Median / then.Median
}

// ShowRatio writes the ratio, if there is one.
func (v *ComparedValue) ShowRatio() string {
	if v.Ratio == 0 {
		return none
	}
	return ShowRatio(v.Ratio)
}

// Summary is the comparison in a line: how many values are others, and which way. Of so many
// some always seem to be.
func (c *Comparison) Summary() string {
	var times, figures [Lower + 1]int
	told := 0
	for _, r := range c.Rows {
		for i, v := range r.Values {
			of := &figures
			if i == 0 {
				of = &times
			}
			of[v.Verdict]++
			if v.Verdict != TooFew {
				told++
			}
		}
	}
	text := "In short: times end to end: " + tally(times[:])
	if slices.Max(figures[:]) > 0 {
		text += "; figures: " + tally(figures[:])
	}
	if told > 0 {
		text += fmt.Sprintf(". If nothing had changed, chance alone would have about %.0f of them differ", max(1, float64(told)/20))
	}
	return text
}

// tally says how many there are of each verdict.
func tally(of []int) string {
	var parts []string
	for _, v := range []Verdict{Faster, Improved, Slower, Worsened, Higher, Lower, Within, TooFew} {
		if n := of[v]; n > 0 || v == Faster || v == Slower || v == Within {
			parts = append(parts, fmt.Sprintf("%d %v", n, v))
		}
	}
	return strings.Join(parts, ", ")
}

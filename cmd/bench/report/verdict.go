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
	Better    string  // "less" or "more"; "" of what was chosen, and of a figure that nobody has described
	Verdict   Verdict
	// Mistaken is how often, at most, so many repetitions of one and the same thing are called
	// another value.
	Mistaken float64
}

// endToEnd is what the time of a whole case is called among its figures.
const endToEnd = "time, end to end"

// Verdict says of a value whether it is another one than before.
type Verdict int

// The verdicts. Times and rates get faster or slower, and shares and numbers better or worse;
// of what nobody has said which way is better it is said which way it went.
const (
	Within    Verdict = iota // it differs as repetitions do
	TooFew                   // repetitions to tell
	NotJudged                // it was chosen
	Faster
	Slower
	Improved
	Worsened
	Higher
	Lower
)

func (v Verdict) String() string {
	return []string{"within the spread", "too few to tell", "chosen", "faster", "slower", "better", "worse", "higher", "lower"}[v]
}

// enoughInEach is how many repetitions of each of two runs are enough for a difference to be told
// from chance. More in one make up for fewer in the other: 3 and 5 are enough, too. TestVerdicts
// holds it against stats.Apart.
const enoughInEach = 4

// AboutComparison says how to read a comparison, in sentences.
var AboutComparison = []string{
	"Medians then and now, and now by then; under better stands whether less or more of it is better.",
	"Faster or slower, better or worse: the repetitions in the two runs lie further apart than those of one and the same thing would in one of twenty cases.",
	"Within the spread: no further than repetitions differ by themselves.",
	fmt.Sprintf("Too few to tell: however they fall, so few repetitions could have fallen so by chance; for example %d in each run are enough (--repeat, --boots).", enoughInEach),
	"Chance is here how repetitions scatter, and nothing else: what was otherwise between the two runs, as a busier hour of the machine, makes values differ that nobody has changed.",
	"Chosen: somebody made it take so long, so no run is told by it.",
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
	case more == (c.Better == More):
		return Improved
	default:
		return Worsened
	}
}

// values compares the time of a case, and each figure that both results have in the same unit.
func values(now, then *Result) (out []ComparedValue) {
	a, b := &now.Total.NS, &then.Total.NS
	time := ComparedValue{endToEnd, ShowTime(b.Median), ShowTime(a.Median), ratioOf(a, b), Less.String(), verdict(a, b, Nanoseconds, nil), mistaken(a, b)}
	if now.chosen() {
		time.Ratio, time.Better, time.Verdict = 0, Chosen.String(), NotJudged
	}
	out = append(out, time)
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
		out = append(out, ComparedValue{f.Name, then.Show(g), now.Show(f), ratioOf(&f.Value, &g.Value), better, verdict(&f.Value, &g.Value, f.Unit, c), mistaken(&f.Value, &g.Value)})
	}
	return out
}

func mistaken(now, then *stats.Summary) float64 {
	return stats.Mistaken(len(now.Values), len(then.Values))
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

// Summary is the comparison in a line: how many values are others, and which way. Of many some
// always seem to be.
func (c *Comparison) Summary() string {
	var times, figures [Lower + 1]int
	chance := 0.0 // of how many it could be
	for _, r := range c.Rows {
		for i, v := range r.Values {
			if v.Verdict == NotJudged {
				continue
			}
			of := &figures
			if i == 0 {
				of = &times
			}
			of[v.Verdict]++
			if v.Verdict != TooFew {
				chance += v.Mistaken
			}
		}
	}
	text := "In short: times end to end: " + tally(times[:])
	if slices.Max(figures[:]) > 0 {
		text += "; figures: " + tally(figures[:])
	}
	if chance > 0 {
		some := "fewer than one"
		if chance > 0.95 { // 1.0, as it is written
			some = fmt.Sprintf("up to %.1f", chance)
		}
		text += ". If nothing had changed, the scatter of repetitions alone would have " + some + " of them differ, on average"
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

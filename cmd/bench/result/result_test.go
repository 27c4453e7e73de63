package result

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
	"pgregory.net/rapid"
)

// planted is a run of two scenarios whose times are noise around base, times factor for a set-up.
func planted(rounds int, factor map[string]float64) *Run {
	r := NewRun()
	for round := range rounds {
		noise := 1 + 0.02*math.Sin(float64(round*7)) // shared by a round's set-ups
		for _, scenario := range []string{"probe", "copy"} {
			for i, setup := range []string{"pass-through", "all"} {
				f := factor[scenario+"/"+setup]
				if f == 0 {
					f = 1
				}
				single := 1 + 0.001*float64((round*3+i)%5)
				r.Add(Key{Where: Process, Scenario: scenario, Case: "size=4KiB", Setup: setup}, []Value{
					{"ns/op", 1e6 * noise * single * f}, {Traps, 100 * f}, {"to-vram-B/s", 1e9 / f},
				})
			}
		}
	}
	return r
}

func written(t require.TestingT, r *Run) string {
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	return b.String()
}

// TestFormat checks that golang.org/x/perf reads what Write wrote, and so does Read.
func TestFormat(t *testing.T) {
	r := planted(2, nil)
	r.Notes, r.Errors = []string{"umbra bench test"}, []string{"growth: no memory"}
	text := written(t, r)
	require.Contains(t, text, "\nBenchmarkCopy/size=4KiB/setup=all 1 ")
	require.Contains(t, text, "\nUnit to-vram-B/s better=higher\n")
	require.Contains(t, text, "\nwhere: process\n")
	from := benchfmt.NewReader(strings.NewReader(text), "test")
	n := 0
	for from.Scan() {
		if res, ok := from.Result().(*benchfmt.Result); ok {
			n++
			_, ok := res.Value("sec/op")
			require.True(t, ok)
		} else {
			require.IsType(t, new(benchfmt.UnitMetadata), from.Result())
		}
	}
	require.Equal(t, 8, n)
	back, err := Read(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, r.Notes, back.Notes)
	require.Equal(t, r.Errors, back.Errors)
	require.Equal(t, r.Groups(true), back.Groups(true))
	require.Equal(t, text, written(t, back))

	_, err = Read(strings.NewReader("bench: yes\n"))
	require.ErrorContains(t, err, "no results of umbra bench")
}

// TestKeys checks that every key survives its benchmark name.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z][a-z0-9=.+-]{0,8}[a-z]`)
		k := Key{Where: Machine, Scenario: rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "scenario"), Setup: word.Draw(t, "setup")}
		k.Case = strings.Join(rapid.SliceOfN(word, 0, 3).Draw(t, "case"), "/")
		r := NewRun()
		r.Add(k, []Value{{"ns/op", 1}})
		back, err := Read(strings.NewReader(written(t, r)))
		require.NoError(t, err)
		got, ok := keyOf(back.Results[0])
		require.True(t, ok)
		require.Equal(t, k, got)
	})
}

func group(t *testing.T, r *Run, scenario, setup string) *Group {
	g := only(r.Groups(false), func(g Group) bool { return g.Scenario == scenario && g.Setup == setup })
	require.Len(t, g, 1)
	return &g[0]
}

// TestRatio checks that a planted slow-down is the ratio of its scenario alone, with an interval
// around it, and that rounds are paired: the noise that they share is not in the interval.
func TestRatio(t *testing.T) {
	r := planted(8, map[string]float64{"probe/all": 1.2})
	slow := group(t, r, "probe", "all").Ratio
	require.InDelta(t, 1.2, slow.Median, 0.01)
	require.NotNil(t, slow.Low)
	require.Greater(t, *slow.Low, 1.19)
	require.Less(t, *slow.High, 1.21)
	require.InDelta(t, 1, group(t, r, "copy", "all").Ratio.Median, 0.01)
	require.InDelta(t, 120, group(t, r, "probe", "all").Traps.Median, 1e-9)
	r.Base = "all"
	require.InDelta(t, 1/1.2, group(t, r, "probe", "pass-through").Ratio.Median, 0.01)
	r.Base = ""
	require.Nil(t, group(t, planted(5, nil), "probe", "all").Ratio.Low, "five rounds make no interval")

	var b strings.Builder
	require.NoError(t, r.Text(&b, false))
	require.Regexp(t, `(?m)^probe +1\.\d+ms +100 +1\.20 ±\d% +120$`, b.String())
	b.Reset()
	require.NoError(t, r.Text(&b, true))
	require.Regexp(t, `(?m)^process +probe/size=4KiB +traps/op +100\.0 ±0% +120\.0 ±0%$`, b.String())
}

// TestMissingCases checks that a ratio is of the cases that both set-ups have.
func TestMissingCases(t *testing.T) {
	r := planted(6, nil)
	for range 6 {
		r.Add(Key{Where: Process, Scenario: "copy", Case: "size=1MiB", Setup: "pass-through"}, []Value{{"ns/op", 1e9}})
	}
	g := group(t, r, "copy", "all")
	require.True(t, g.Partial)
	require.InDelta(t, 1, g.Ratio.Median, 0.01)
	require.InDelta(t, 1e6, g.Time.Median, 1e5, "the time is of the same cases as the ratio")
	require.False(t, group(t, r, "copy", "pass-through").Partial)
}

// TestCompare checks that a comparison of two runs shows a planted slow-down and nothing else.
func TestCompare(t *testing.T) {
	compare := func(rounds int, all bool) string {
		var b strings.Builder
		require.NoError(t, Compare(&b, planted(rounds, nil), planted(rounds, map[string]float64{"probe/all": 1.2}), all))
		return b.String()
	}
	text := compare(6, false)
	require.Regexp(t, `(?m)^process +probe/size=4KiB +all +sec/op +1\.0\d+m ±.* 1\.2\d+m ±.* \+(19|20)\.\d+% \(p=0\.002 n=6\)$`, text)
	require.Contains(t, text, "\n2 worse, 0 better, 6 without a significant difference")
	require.NotContains(t, text, "copy/")
	text = compare(6, true)
	require.Contains(t, text, "\n3 worse, 0 better, 9 without")
	require.Contains(t, text, "copy/")
	text = compare(3, false)
	require.Contains(t, text, "\n0 worse,")
	require.Contains(t, text, "too few repetitions")

	var b strings.Builder
	other := planted(6, nil)
	for i := range other.Results {
		other.Results[i].SetConfig("cpu", "another")
	}
	require.NoError(t, Compare(&b, other, planted(6, nil), false))
	require.Contains(t, b.String(), "The runs differ in cpu (another, ")
}

// TestPage checks that the page has its plots, names everything, and loads nothing.
func TestPage(t *testing.T) {
	r := planted(6, nil)
	for round := range 6 {
		for _, n := range []int{1, 4} {
			r.Add(Key{Where: Process, Scenario: "crowd", Case: fmt.Sprint("guests=", n), Setup: "all"}, []Value{
				{"ns/op", 1e6 + float64(round)}, {"B/s", 1e9},
			})
		}
	}
	var b bytes.Buffer
	require.NoError(t, r.Page(&b))
	require.Equal(t, 3, strings.Count(b.String(), "<svg"))
	for _, text := range []string{">probe<", ">copy<", ">pass-through<", ">all<", ">ideal: as one guest<", ">GiB/s<"} {
		require.Contains(t, b.String(), text)
	}
	require.NotRegexp(t, `(src|href)=`, b.String())
}

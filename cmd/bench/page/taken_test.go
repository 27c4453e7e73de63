package page_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/page"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// spoiled are the ways to say another thing in place of a value, of which the schema takes some.
func spoiled(v any) (out []any) {
	switch v := v.(type) {
	case []any:
		out = append(out, []any{})
		if len(v) > 1 {
			out = append(out, v[:1])
		}
	case map[string]any:
		out = append(out, map[string]any{})
	case string:
		out = append(out, "other")
	case float64:
		out = append(out, 0.0, 40.0)
	}
	return out
}

// places calls f with each value below v and the way to put another one in its place, nil for
// none at all. Of a list the first is enough.
func places(v any, at string, f func(at string, v any, put func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			x := v[k]
			f(at+"."+k, x, func(y any) {
				if v[k] = y; y == nil {
					delete(v, k)
				}
			})
			places(x, at+"."+k, f)
			v[k] = x
		}
	case []any:
		for i, x := range v[:min(len(v), 1)] {
			f(fmt.Sprintf("%s[%d]", at, i), x, func(y any) { v[i] = y })
			places(x, fmt.Sprintf("%s[%d]", at, i), f)
			v[i] = x
		}
	}
}

// TestShowsWhatTheSchemaTakes: of a report that somebody wrote, or wrote anew, each value is
// spoiled by turns. What the schema takes is shown and compared, whatever it says.
func TestShowsWhatTheSchemaTakes(t *testing.T) {
	r := sample(values["alike"])
	r.Run.Repeat, r.Setups[0].Options = 3, map[string]string{}
	r.Model = &report.Model{Terms: []report.Term{{Name: "a wake", Count: report.Wakes, NS: -5}}, Own: []report.Own{{Phase: "probe, init", NS: 1}}, N: 3}
	r.Counted = r.Model
	one := stats.Of([]float64{2, 3, 4})
	r.Bells = []report.Bell{{Where: report.InProcess, Case: "credit", Setup: report.PassThrough, By: "slow", Store: one, Launch: one, Work: one}}
	r.Scenarios, r.Results = r.Scenarios[:1], r.Results[1:2]
	for _, name := range []string{"first", "second"} {
		r.Results[0].Figures = append(r.Results[0].Figures, report.Figure{Name: name, Unit: report.Number, Value: stats.Of([]float64{1, 2, 3, 4, 5, 6, 7, 8})})
	}
	var b bytes.Buffer
	require.NoError(t, r.Encode(&b))
	whole, err := report.Decode(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	var tree any
	require.NoError(t, json.Unmarshal(b.Bytes(), &tree))
	taken := 0
	places(tree, "report", func(at string, v any, put func(any)) {
		for _, x := range append(spoiled(v), nil) {
			put(x)
			text, err := json.Marshal(tree)
			require.NoError(t, err)
			if y, err := report.Decode(bytes.NewReader(text)); err == nil {
				taken++
				require.NotPanics(t, func() { show(y, whole) }, "%s is %v", at, x)
			}
			put(v)
		}
	})
	require.Greater(t, taken, 150)
}

// show does with a report all that is done with one.
func show(r, then *report.Report) {
	var b strings.Builder
	b.WriteString(r.Text())
	_ = page.Write(&b, r, nil)
	for _, p := range [][2]*report.Report{{r, then}, {then, r}} {
		if c, err := report.Compare(p[0], p[1]); err == nil {
			b.WriteString(c.Text())
			_ = page.Write(&b, p[0], c)
		}
	}
}

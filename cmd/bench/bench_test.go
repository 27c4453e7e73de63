package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/perf/benchfmt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryScenario runs every scenario of this process once, with set-ups of each kind, and checks
// what was counted. The scenarios verify the data that they move.
func TestEveryScenario(t *testing.T) {
	names := []string{passThrough, "naive", "all"}
	r, err := Run(t.Context(), Options{Quick: true, Repeat: 1, InProcess: true, Setups: names, Progress: t.Output()})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	for _, s := range keep(scenarios, func(s scenario) bool { return s.cases != nil }) {
		for _, c := range s.cases(true) {
			here := choose(names)
			for i := range here {
				if s.name == "traps" && here[i].name == "all" { // reaches what it maps without a trap
					continue
				}
				m := r.Medians(Key{process, s.name, c.name, here[i].name})
				require.Equal(t, c.takes(&here[i]), m[unitTime] > 0, "%s %s on %s", s.name, c.name, here[i].name)
			}
		}
	}
	of := func(scenario, name, setup string) map[string]float64 {
		return r.Medians(Key{process, scenario, name, setup})
	}
	naive := of("submit", "submissions=500", "naive")
	require.Equal(t, 501.0, naive[unitTraps], "a doorbell each, and a read")
	require.Equal(t, 500.0, naive["doorbells/op"])
	require.Equal(t, 1.0, of("traps", "bar3-read", "naive")[unitTraps])
	require.NotContains(t, of("traps", "bar3-read", "all"), unitTraps)
	dense := of("tables", "dense/entries=16384", "naive")
	require.Equal(t, 16384.0, dense["entries-rewritten/op"], "the card hears of changes only")
	require.Greater(t, dense["entries-examined/op"], 16384.0)
	require.Less(t, of("tables", "dense/entries=16384", "all")[unitTraps], dense[unitTraps]/10)
	for setup, has := range map[string][3]bool{passThrough: {}, "naive": {true, false, false}, "all": {true, true, true}} {
		for i, unit := range []string{"scans/op", "entries-changed/op", "map-scans/op"} {
			_, ok := of("tables", "dense/entries=16384", setup)[unit]
			require.Equal(t, has[i], ok, "%s: %s", setup, unit)
		}
	}
}

// TestChoose checks which set-ups a run takes.
func TestChoose(t *testing.T) {
	for _, c := range [][2]string{
		{"", "pass-through pass-through+map naive trapped all"}, {"all naive+map", "naive+map all"}, {every, ""},
	} {
		names := distinct(choose(strings.Fields(c[0])), func(s setup) string { return s.name })
		require.Equal(t, c[0] == every, len(names) == len(setups))
		if c[1] != "" {
			require.Equal(t, c[1], strings.Join(names, " "))
		}
	}
}

// planted is a run whose times are noise around 1 ms, times factor for the set-up all.
func planted(rounds int, factor float64) *record {
	r := new(record)
	for round := range rounds {
		noise := 1 + 0.02*math.Sin(float64(round*7)) // shared by a round's set-ups
		for i, setup := range []string{passThrough, "all"} {
			f := []float64{1, factor}[i] * (1 + 0.001*float64((round*3+i)%5))
			r.add(Key{process, "probe", "size=4KiB", setup}, []benchfmt.Value{
				{Unit: "ns/op", Value: 1e6 * noise * f}, {Unit: unitTraps, Value: 100 * float64(i+1)}, {Unit: "to-vram-B/s", Value: 1e9},
				{Unit: "shadow-ns/op", Value: float64(i)},
			})
		}
	}
	return r
}

// TestFormat checks that golang.org/x/perf reads a record, and so does Read. A time of zero
// has the unit of other times, or a rise from it would not be compared.
func TestFormat(t *testing.T) {
	text := planted(2, 1)
	text.note("umbra bench test")
	text.failed("growth: no\nmemory")
	require.Contains(t, text.String(), "\nBenchmarkProbe/size=4KiB/setup=all 1 ")
	require.Equal(t, 1, strings.Count(text.String(), "where: process\n"))
	from := benchfmt.NewReader(strings.NewReader(text.String()), "test")
	lines := 0
	for from.Scan() {
		res, ok := from.Result().(*benchfmt.Result)
		require.True(t, ok)
		for _, unit := range []string{unitTime, "shadow-sec/op"} {
			_, ok = res.Value(unit)
			require.True(t, ok, unit)
		}
		lines++
	}
	require.Equal(t, 4, lines)
	back, err := Read(strings.NewReader(text.String()))
	require.NoError(t, err)
	require.Equal(t, []string{"umbra bench test"}, back.Notes)
	require.Equal(t, []string{"growth: no; memory"}, back.Errors)
	require.Equal(t, []float64{0, 0}, back.values[Key{process, "probe", "size=4KiB", passThrough}]["shadow-sec/op"])
	_, err = Read(strings.NewReader("bench: yes\n"))
	require.ErrorContains(t, err, "no results of umbra bench")
}

// TestRatio checks that a planted slow-down is the ratio, of the cases that both set-ups have, with an
// interval around it, and that rounds are paired: the noise that they share is not in the interval.
func TestRatio(t *testing.T) {
	r := planted(8, 1.2)
	for range 8 { // each has a case that the other lacks
		r.add(Key{process, "probe", "size=1MiB", passThrough}, []benchfmt.Value{{Unit: "ns/op", Value: 1e9}})
		r.add(Key{process, "probe", "size=2MiB", "all"}, []benchfmt.Value{{Unit: "ns/op", Value: 1e9}})
	}
	read := func(r *record) *Results {
		out, err := parse(r.String())
		require.NoError(t, err)
		return out
	}
	all := func(r *record, base string) group {
		groups := read(r).groups(base)
		return groups[slices.IndexFunc(groups, func(g group) bool { return g.setup == "all" })]
	}
	g := all(r, passThrough)
	require.True(t, g.partial)
	require.InDelta(t, 1.2e-3, g.time.Center, 1e-4, "the time is of the same cases as the ratio")
	require.InDelta(t, 1.2, g.ratio.Center, 0.01)
	require.Greater(t, g.ratio.Lo, 1.19)
	require.Less(t, g.ratio.Hi, 1.21)
	require.InDelta(t, 1, all(r, "all").ratio.Center, 1e-9)
	few := all(planted(5, 1), passThrough)
	require.False(t, hasInterval(few.ratio), "five rounds make no interval")

	var text strings.Builder
	require.NoError(t, read(planted(8, 1.2)).Text(&text, ""))
	require.Regexp(t, `(?m)^probe +1\.\d\d ms +1\.20 ±\d%$`, text.String())
	require.Regexp(t, `(?m)^probe +100 +200$`, text.String())
}

// TestTablesFitTerminal checks that the tables of the default set-ups are at most 100 columns wide, whatever the noise.
func TestTablesFitTerminal(t *testing.T) {
	r := new(record)
	noise := 1.0
	for range 6 {
		for _, s := range scenarios {
			for _, where := range []string{process, machines} {
				cases := []testCase{{name: "case"}}
				if s.cases != nil {
					cases = s.cases(false)
				}
				for _, c := range cases {
					for i, setup := range choose(nil) {
						noise = math.Mod(noise*997, 1009)
						values := []benchfmt.Value{{Unit: unitNS, Value: 1e6 * noise}, {Unit: unitTraps, Value: 1e7}}
						if !setup.whole {
							values = append(values, benchfmt.Value{Unit: "scans/op", Value: 123456}, benchfmt.Value{Unit: "invalidates/op", Value: 123456})
						}
						for _, step := range programSteps {
							values = append(values, benchfmt.Value{Unit: step.phases[0] + "-" + unitNS, Value: 1e8 * float64(1+20*i)})
						}
						r.add(Key{where, s.name, c.name, setup.name}, values)
					}
				}
			}
		}
	}
	out, err := parse(r.String())
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, out.Text(&text, ""))
	require.Contains(t, text.String(), "traps register-write-posted")
	require.Contains(t, text.String(), "±>999%")
	for line := range strings.Lines(text.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 100+1, line)
	}
}

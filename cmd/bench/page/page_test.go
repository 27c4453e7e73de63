package page_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/page"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// scenarios with their cases, as the parameters that plots have along their axes.
var scenarios = []struct {
	name, figure string
	unit         report.Unit
	parameters   []map[string]string
}{
	{"probe", "", "", []map[string]string{{}}},
	{"contexts", "", "", []map[string]string{{"contexts": "1"}, {"contexts": "4"}, {"contexts": "16"}}},
	{"copy", "to VRAM", report.BytesPerSecond, []map[string]string{{"bytes": "4096", "engine": "CE0"}, {"bytes": "67108864", "engine": "CE0"}, {"bytes": "4096", "engine": "M2MF"}}},
	{"program", "", "", []map[string]string{{"work_ms": "1"}, {"work_ms": "1000"}}},
	{"doorbell", "p50", report.Nanoseconds, []map[string]string{{}}},
	{"growth", "", "", []map[string]string{{"tables": "1"}, {"tables": "10"}, {"tables": "100"}}},
	{"neighbour", "slowdown", report.Share, []map[string]string{{}}},
}

// sample has a result for each of them, of the values that v gives by turn.
func sample(v func(turn int) float64) *report.Report {
	r := &report.Report{
		Schema: report.Schema, Version: report.Version, Umbra: "v1 & <script>", Began: time.Unix(0, 0).UTC(),
		Machine:  report.Machine{Processor: `An "old" <one>`, Processors: 2},
		Emulator: &report.Emulator{QEMU: "11.1.3", Accelerator: "tcg"},
		Setups: []report.Setup{
			{Name: report.PassThrough, About: "nothing in between"},
			{Name: "slow & <b>bold</b>", About: "the long way", Options: map[string]string{"server.spin": "50us"}},
		},
		Model:  &report.Model{Terms: []report.Term{{Name: "a wake", NS: -5}}, N: 3},
		Errors: []string{"no <memory>"},
	}
	for _, sc := range scenarios {
		r.Scenarios = append(r.Scenarios, report.Scenario{Name: sc.name, Title: "The " + sc.name, About: "What it is."})
		for i, p := range sc.parameters {
			for _, where := range []string{report.InProcess, report.InMachine} {
				var base []report.Sample
				for _, s := range r.Setups {
					var samples []report.Sample
					for turn := range 3 {
						x := report.Sample{Phases: []report.PhaseSample{
							{Name: "init", NS: v(turn), Counts: map[string]float64{report.Reads: 3}}, {Name: "use", NS: v(turn) * 3, Counts: map[string]float64{report.Reads: 3}},
						}}
						if sc.figure != "" {
							x.Figures = []report.FigureSample{{Name: sc.figure, Unit: sc.unit, Value: v(turn) - 2}}
						}
						if s.Name != report.PassThrough {
							x.Phases[0].Counts[report.Examined] = v(turn)
						}
						samples = append(samples, x)
					}
					if base == nil {
						base = samples
					}
					y := report.Result{Scenario: sc.name, Case: "case " + string(rune('a'+i)), Where: where, Setup: s.Name, Parameters: p}
					y.Sum(samples, base)
					r.Results = append(r.Results, y)
				}
			}
		}
	}
	for _, s := range r.Setups {
		for _, posted := range []bool{false, true} {
			one := stats.Of([]float64{v(0)})
			r.Traps = append(r.Traps, report.Trap{Setup: s.Name, Class: "read & <write>", Posted: posted, N: 1, P50: one, P99: one, Socket: one, Dispatch: one, Effect: one})
		}
	}
	return r
}

func write(t *testing.T, r *report.Report, c *report.Comparison) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, page.Write(&b, r, c))
	return b.String()
}

var (
	pictures = regexp.MustCompile(`(?s)<svg.*?</svg>`)
	// foreign is everything by which a page makes a browser fetch or run something.
	foreign = regexp.MustCompile(`(?i)https?:|<script|<link|<iframe|<img|<object|<embed|@import|url\(|\bsrc\s*=|\son\w+\s*=|xlink|javascript:|data:`)
	links   = regexp.MustCompile(`href="([^"]*)"`)
	ids     = regexp.MustCompile(`id="([^"]*)"`)
)

// values are kinds of measurements that a plot must stand: alike, far apart, all
// nothing, below nothing.
var values = map[string]func(turn int) float64{
	"alike":     func(turn int) float64 { return 1e6 + float64(turn) },
	"far apart": func(turn int) float64 { return math.Pow(1000, float64(turn)) },
	"nothing":   func(int) float64 { return 0 },
	"small":     func(turn int) float64 { return float64(turn) / 7 },
}

// The page is one file: it fetches nothing, runs nothing, and its links lead to
// places that it has.
func TestPageStandsAlone(t *testing.T) {
	for name, v := range values {
		r := sample(v)
		c, err := report.Compare(r, sample(v))
		require.NoError(t, err)
		html := write(t, r, c)
		require.Empty(t, foreign.FindAllString(html, -1), name)
		have := map[string]bool{}
		for _, m := range ids.FindAllStringSubmatch(html, -1) {
			require.False(t, have[m[1]], "two elements have the id %s", m[1])
			have[m[1]] = true
		}
		found := links.FindAllStringSubmatch(html, -1)
		require.Greater(t, len(found), 10)
		for _, m := range found {
			require.True(t, strings.HasPrefix(m[1], "#") && have[m[1][1:]], "the link %s leads nowhere", m[1])
		}
	}
}

// Below a table stands what its columns are: phases, figures and counts, told apart.
func TestPageExplainsColumns(t *testing.T) {
	html := write(t, sample(values["alike"]), nil)
	r := sample(values["nothing"])
	require.Contains(t, write(t, r, nil), "<dt>examined</dt><dd>", "a column of zeros is shown, too")
	require.Contains(t, html, "<dl class=\"terms\"><dt>reads</dt><dd>trapped reads of any region</dd>")
	require.Contains(t, html, "<h3>Phases: ")
	require.Contains(t, html, "<h3>Figures: ")
	require.Contains(t, html, "<dt>init</dt><dd>memory is allocated and mapped, and a channel is made</dd>")
	require.Contains(t, html, "<dt>p50</dt><dd>from the submission until ")
}

// A page says as the tables do that the machine was busy.
func TestPageWarnsOfABusyMachine(t *testing.T) {
	r := sample(values["alike"])
	require.NotContains(t, write(t, r, nil), "kept the machine busy")
	r.Machine.Load = 7.5
	require.Contains(t, write(t, r, nil), `<div class="error">Note: other work kept the machine busy (load 7.5 on 2 processors when the run began)`)
}

// A page names as the tables do what is missing: set-ups of a scenario, and results of the run
// before.
func TestPageNamesWhatIsMissing(t *testing.T) {
	r, then := sample(values["alike"]), sample(values["alike"])
	gone := r.Setups[1].Name
	r.Results = slices.DeleteFunc(r.Results, func(x report.Result) bool { return x.Setup == gone })
	c, err := report.Compare(r, then)
	require.NoError(t, err)
	html := write(t, r, c)
	require.Contains(t, html, ". Not measured with slow &amp; &lt;b&gt;bold&lt;/b&gt;.")
	require.Contains(t, html, `<div class="error">Measured there, not here, `)
	require.Contains(t, html, " and more</div>")
	html = write(t, then, nil)
	require.NotContains(t, html, "Not measured with")
	require.NotContains(t, html, "not here")
}

// That the search above would find them.
func TestForeignThings(t *testing.T) {
	for _, bad := range []string{
		`<img src="a.png">`, `<script>`, `<link rel="stylesheet" href="x">`, `background: url(x)`, `@import "x"`, `<a href="http://x">`, `<p onclick="x">`,
	} {
		require.Regexp(t, foreign, bad)
	}
}

// Every picture is well-formed XML, has a name for who cannot see it, and places
// everything inside itself.
func TestPicturesAreWellFormed(t *testing.T) {
	for name, v := range values {
		all := pictures.FindAllString(write(t, sample(v), nil), -1)
		require.Greater(t, len(all), 15, name)
		for _, svg := range all {
			var box [2]float64
			d := xml.NewDecoder(strings.NewReader(svg))
			texts := 0
			for {
				tok, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err, svg)
				e, ok := tok.(xml.StartElement)
				if !ok {
					continue
				}
				if e.Name.Local == "text" {
					texts++
				}
				for _, a := range e.Attr {
					switch a.Name.Local {
					case "viewBox":
						box = numbers(t, a.Value)[1]
					case "aria-label":
						require.NotEmpty(t, a.Value)
					case "x", "x1", "x2", "cx":
						inside(t, a.Value, box[0], svg)
					case "y", "y1", "y2", "cy":
						inside(t, a.Value, box[1], svg)
					case "d":
						numbers(t, a.Value)
					}
				}
			}
			require.NotZero(t, box[0])
			require.Greater(t, texts, 2, svg)
		}
	}
}

func inside(t *testing.T, text string, size float64, svg string) {
	t.Helper()
	n := numbers(t, text+" 0")[0][0]
	require.True(t, n >= -0.5 && n <= size+0.5, "%s is not within 0 to %v: %s", text, size, svg)
}

// numbers reads pairs of them.
func numbers(t *testing.T, text string) (out [][2]float64) {
	t.Helper()
	fields := strings.Fields(strings.NewReplacer("M", " ", "L", " ").Replace(text))
	require.Zero(t, len(fields)%2, text)
	for i := 0; i < len(fields); i += 2 {
		var p [2]float64
		for k := range p {
			v, err := strconv.ParseFloat(fields[i+k], 64)
			require.NoError(t, err, text)
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0), text)
			p[k] = v
		}
		out = append(out, p)
	}
	return out
}

// What the report names is written, and never read as HTML.
func TestNamesAreText(t *testing.T) {
	html := write(t, sample(values["alike"]), nil)
	require.NotContains(t, html, "<b>bold</b>")
	require.NotContains(t, html, "<write>")
	require.Contains(t, html, "slow &amp; &lt;b&gt;bold&lt;/b&gt;")
	require.Contains(t, html, "Not measured: no &lt;memory&gt;")
	require.Contains(t, html, "An &#34;old&#34; &lt;one&gt;")
	require.Contains(t, html, "QEMU</dt><dd>11.1.3 with tcg")
	require.Contains(t, html, "prefers-color-scheme: dark")
}

func TestPageOfAComparison(t *testing.T) {
	r, then := sample(values["alike"]), sample(values["alike"])
	then.Emulator.QEMU = "10.1"
	c, err := report.Compare(r, then)
	require.NoError(t, err)
	html := write(t, r, c)
	require.Contains(t, html, "Against the run before")
	require.Contains(t, html, "emulator.qemu: 11.1.3 here, 10.1 there")
	require.Contains(t, html, "<p>In short: times end to end: 0 faster, 0 slower, 0 within the spread, ")
	require.Contains(t, html, "for example 4 in each run are enough")
	require.Contains(t, html, "busier hour of the machine")
	require.Regexp(t, `<td class="word">p50</td><td>[^<]*</td><td>[^<]*</td><td>1\.00</td><td>too few to tell</td><td>less</td>`, html, "figures are compared, too")
	require.NotContains(t, write(t, r, nil), "Against the run before")
}

// A report without anything in it is still a page.
func TestEmptyReport(t *testing.T) {
	require.Contains(t, write(t, &report.Report{}, nil), "What serving a GPU costs")
}

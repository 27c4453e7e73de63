package page

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
	"github.com/umbra-gpu/umbra/cmd/plot"
)

func median(s stats.Summary) float64 { return s.Median }
func same(v float64) float64         { return v }

// ablation is the one table of all set-ups, and their ratios by scenario.
func (d *drawer) ablation(place string) []section {
	rows := d.r.Ablation(place)
	if len(rows) == 0 {
		return nil
	}
	s := section{
		ID: "ablation-" + place, Title: where("All set-ups", place), Open: true,
		About: fmt.Sprintf("Sums of medians over the %s that every set-up ran. The ratio is end to end, by pass-through's of the same turn: the geometric mean of the cases, and the worst of them. Same map is the ratio to the whole card with as much of it mapped, and the worst scenario by that; naive is how many times as long as this set-up full virtualization takes.", report.HowMany(rows[0].Cases, "case")),
	}
	var sets []map[string]float64
	for _, a := range rows {
		sets = append(sets, a.Counts)
	}
	titles, cells := counts(sets, same)
	t := table{Words: 1, Head: slices.Concat([]string{"set-up", "end to end", "ratio", "worst", "same map", "worst", "naive"}, titles, []string{"worst of"}), Legend: terms(d.r.ExplainCounts(true))}
	ratio := func(v float64) cell {
		if v == 0 {
			return number(none)
		}
		return number(report.ShowRatio(v))
	}
	for _, a := range rows {
		if a.Setup == report.PassThrough { // the baseline against itself
			a.Mean, a.Worst, a.WorstCase = 0, 0, ""
		}
		row := []cell{d.setup(a.Setup), number(report.ShowTime(a.NS)), ratio(a.Mean), ratio(a.Worst), ratio(a.SameMean), ratio(a.SameWorst), ratio(a.NaiveMean)}
		t.Rows = append(t.Rows, append(append(row, cells(a.Counts)...), word(a.WorstCase)))
	}
	s.Tables = append(s.Tables, t)
	p := plot.Bars{Label: "Time by pass-through's, by scenario and set-up", Axis: "time by pass-through's, geometric mean of the scenario's cases", Show: report.ShowRatio, Mark: 1}
	for _, sc := range d.r.Scenarios {
		for _, set := range d.r.Setups {
			if v := d.r.ByPassThrough(place, sc.Name, set.Name); v > 0 && set.Name != report.PassThrough {
				p.Bars = append(p.Bars, plot.Bar{Name: sc.Name, Group: sc.Name, Class: d.class[set.Name], Value: v, Tip: set.Name + ": " + report.ShowRatio(v)})
			}
		}
	}
	if len(p.Bars) > 0 {
		s.Pictures = append(s.Pictures, picture{
			Title: "How many times as long as pass-through", SVG: p.Draw(),
			Legend: slices.DeleteFunc(slices.Clone(d.legend), func(k key) bool { return k.Name == report.PassThrough }),
		})
	}
	return []section{s}
}

// A view is how a scenario is drawn besides its tables.
type view struct {
	title string
	split string // parameter whose values get a picture each; "" is one for all
	x     string // parameter along the axis; "" draws bars
	xAxis string
	showX func(float64) string
	// what is drawn: the total time, or the figure or count of that name
	figure, count string
	phases        bool // as bars of their phases
}

func bytes(v float64) string {
	switch {
	case v >= 1<<20:
		return fmt.Sprintf("%g MiB", v/(1<<20))
	case v >= 1<<10:
		return fmt.Sprintf("%g KiB", v/(1<<10))
	}
	return fmt.Sprintf("%g B", v)
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// views of the scenarios that have better ones than bars of their times.
var views = map[string][]view{
	"contexts": {{title: "Time to make and end so many contexts", x: "contexts", xAxis: "contexts", showX: plain}},
	"copy": {
		{title: "Guest's memory to VRAM by %s", split: "engine", x: "bytes", xAxis: "bytes of one copy", showX: bytes, figure: "to VRAM"},
		{title: "VRAM to guest's memory by %s", split: "engine", x: "bytes", xAxis: "bytes of one copy", showX: bytes, figure: "from VRAM"},
	},
	"program": {{title: "Phases, with %s ms of busy work", split: "work_ms", phases: true}},
	"suspend": {{title: "Phases", phases: true}},
	"storm":   {{title: "Submissions a second", figure: "submissions"}},
	"doorbell": {
		{title: "From doorbell to semaphore, median of the submissions", figure: "p50"},
		{title: "From doorbell to semaphore, 99th percentile", figure: "p99"},
	},
	report.Bells: {
		{title: "A store of GP_PUT, median", figure: report.BellStore}, {title: "A launch, median", figure: report.BellLaunch},
		{title: "Until its work is done, median", figure: report.BellWork}, {title: "The server's processor time for a launch", figure: "server, a launch"},
	},
	"growth": {
		{title: "Time of all changes", x: "tables", xAxis: "size of the tables, in address space of 128 MiB", showX: plain},
		{title: "Entries examined for all changes", x: "tables", xAxis: "size of the tables, in address space of 128 MiB", showX: plain, count: report.Examined},
	},
	"crowd": {
		{title: "Throughput of all guests together", x: "guests", xAxis: "guests", showX: plain, figure: "all together"},
		{title: "Fairness: the first to finish by the last", x: "guests", xAxis: "guests", showX: plain, figure: "fairness"},
	},
	"neighbour": {{title: "Slowdown beside an idle neighbour", figure: "slowdown"}, {title: "Processor time of idle guests, of one core", figure: "idle"}},
}

func (d *drawer) scenario(sc *report.Scenario, place string) []section {
	rows := d.r.Of(sc.Name, place)
	if len(rows) == 0 {
		return nil
	}
	s := section{ID: sc.Name + "-" + place, Title: where(sc.Title, place), About: sentences(sc.About, d.r.Without(rows), report.Few(rows))}
	drawn := views[sc.Name]
	if place == report.InMachine {
		drawn = []view{{title: "Time"}}
		if slices.ContainsFunc(rows, func(x *report.Result) bool { return len(x.Phases) > 1 }) {
			drawn = []view{{title: "Phases", phases: true}}
		}
	}
	for _, v := range drawn {
		s.Pictures = append(s.Pictures, d.view(&v, rows)...)
	}
	if len(s.Pictures) == 0 {
		s.Pictures = d.view(&view{title: "Time"}, rows)
	}
	s.Tables = append(s.Tables, d.times(rows))
	for _, p := range report.Parts(rows) {
		s.Tables = append(s.Tables, d.part(&p, sc.Name, place, rows))
	}
	return []section{s}
}

// sentences joins texts, of which all but the first may be empty.
func sentences(text string, more ...string) string {
	for _, m := range more {
		if m != "" {
			text = strings.TrimSuffix(text, ".") + ". " + m + "."
		}
	}
	return text
}

// view draws one view, split as it says.
func (d *drawer) view(v *view, rows []*report.Result) (out []picture) {
	var groups []string
	by := map[string][]*report.Result{}
	for _, x := range rows {
		g := x.Parameters[v.split]
		if by[g] == nil {
			groups = append(groups, g)
		}
		by[g] = append(by[g], x)
	}
	for _, g := range groups {
		p := picture{Title: v.title, Legend: d.legendOf(by[g])}
		if v.split != "" {
			p.Title = fmt.Sprintf(v.title, g)
		}
		switch {
		case v.phases:
			p.Legend, p.SVG = d.stack(p.Title, by[g])
		case v.x != "":
			p.SVG, p.Half = d.lines(v, p.Title, by[g]), true
		default:
			p.SVG = d.bars(v, p.Title, by[g])
		}
		if p.SVG != "" {
			out = append(out, p)
		}
	}
	return out
}

// legendOf has the set-ups that the results are of.
func (d *drawer) legendOf(rows []*report.Result) (out []key) {
	for _, k := range d.legend {
		if slices.ContainsFunc(rows, func(x *report.Result) bool { return x.Setup == k.Name }) {
			out = append(out, k)
		}
	}
	return out
}

// value is what a view draws of a result.
func (v *view) value(x *report.Result) (s stats.Summary, unit report.Unit, ok bool) {
	switch {
	case v.count != "":
		s, ok = x.Total.Counts[v.count]
		return s, report.Number, ok
	case v.figure == "":
		return x.Total.NS, report.Nanoseconds, true
	}
	for _, f := range x.Figures {
		if f.Name == v.figure {
			return f.Value, f.Unit, true
		}
	}
	return s, "", false
}

func (d *drawer) bars(v *view, title string, rows []*report.Result) template.HTML {
	p := plot.Bars{Label: title, Axis: "time"}
	for _, x := range rows {
		s, unit, ok := v.value(x)
		if !ok {
			continue
		}
		p.Show = unit.Show
		if v.figure != "" {
			p.Axis = axisOf(unit)
		}
		p.Bars = append(p.Bars, plot.Bar{
			Name: x.Case, Group: x.Case, Class: d.class[x.Setup], Value: s.Median, Q1: s.Q1, Q3: s.Q3,
			Tip: fmt.Sprintf("%s, %s: %s, middle half %s to %s", x.Case, x.Setup, unit.Show(s.Median), unit.Show(s.Q1), unit.Show(s.Q3)),
		})
	}
	if len(p.Bars) == 0 {
		return ""
	}
	return p.Draw()
}

func axisOf(u report.Unit) string {
	return map[report.Unit]string{
		report.Nanoseconds: "time", report.BytesPerSecond: "bytes a second", report.EachSecond: "a second", report.Share: "share", report.Number: "number",
	}[u]
}

func (d *drawer) lines(v *view, title string, rows []*report.Result) template.HTML {
	p := plot.Lines{Label: title, XAxis: v.xAxis, ShowX: v.showX, Width: plot.HalfWidth}
	for _, k := range d.legend {
		s := plot.Series{Name: k.Name, Class: k.Class}
		for _, x := range rows {
			at, err := strconv.ParseFloat(x.Parameters[v.x], 64)
			y, unit, ok := v.value(x)
			if err != nil || !ok || x.Setup != k.Name {
				continue
			}
			p.ShowY, p.YAxis = unit.Show, axisOf(unit)
			if v.count != "" {
				p.ShowY, p.YAxis = report.ShowCount, "entries"
			}
			s.Points = append(s.Points, plot.Point{X: at, Y: y.Median, Q1: y.Q1, Q3: y.Q3})
		}
		slices.SortFunc(s.Points, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
		p.Series = append(p.Series, s)
	}
	return p.Draw()
}

// stack draws each result as its phases, one behind the other.
func (d *drawer) stack(title string, rows []*report.Result) ([]key, template.HTML) {
	var legend []key
	p := plot.Bars{Label: title, Axis: "time", Show: report.ShowTime, Stacked: true}
	for _, x := range rows {
		b := plot.Bar{Name: x.Case + ", " + x.Setup, Group: x.Case, Tip: x.Case + ", " + x.Setup}
		for _, ph := range x.Phases {
			i := slices.IndexFunc(legend, func(k key) bool { return k.Name == ph.Name })
			if i < 0 {
				i = len(legend)
				legend = append(legend, key{Class: fmt.Sprintf("p%d", i%plot.Colours), Name: ph.Name})
			}
			b.Parts = append(b.Parts, plot.Part{Name: ph.Name, Class: legend[i].Class, Value: ph.NS.Median})
		}
		p.Bars = append(p.Bars, b)
	}
	return legend, p.Draw()
}

// times is the table of a scenario's times and counts.
func (d *drawer) times(rows []*report.Result) table {
	var sets []map[string]stats.Summary
	for _, x := range rows {
		sets = append(sets, x.Total.Counts)
	}
	titles, cells := counts(sets, median)
	t := table{Words: 2, Head: slices.Concat([]string{"case", "set-up", "time", "middle half", "ratio"}, titles)}
	for _, x := range rows {
		ratio := none
		if x.Ratio != nil {
			ratio = report.ShowRatio(x.Ratio.Median)
		}
		ns := x.Total.NS
		t.Rows = append(t.Rows, append([]cell{
			word(x.Case), d.setup(x.Setup), number(report.ShowTime(ns.Median)),
			number(report.ShowTime(ns.Q1) + " – " + report.ShowTime(ns.Q3)), number(ratio),
		}, cells(x.Total.Counts)...))
	}
	return t
}

// part is the table of a scenario's phases, or of its figures.
func (d *drawer) part(p *report.Part, scenario, place string, rows []*report.Result) table {
	t := table{Words: 2, Title: p.Title, Head: slices.Concat([]string{"case", "set-up"}, p.Names), Legend: terms(report.Explain(scenario, place, p.Names, p.Figure))}
	for _, x := range rows {
		cells := p.Cells(x)
		if slices.Max(cells) == "" { // none of them
			continue
		}
		row := []cell{word(x.Case), d.setup(x.Setup)}
		for _, c := range cells {
			row = append(row, number(cmp.Or(c, none)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// terms is what columns are, as the page has it.
func terms(rows []report.Explained) (out []plot.Term) {
	for _, e := range rows {
		out = append(out, plot.Term(e))
	}
	return out
}

// bells compares those that are trapped with those that are found.
func (d *drawer) bells() []section {
	title, head, rows := d.r.BellTable()
	if len(rows) == 0 {
		return nil
	}
	t := table{Words: 3, Head: head}
	for _, r := range rows {
		t.Rows = append(t.Rows, []cell{word(r[0]), word(r[1]), word(r[2]), number(r[3]), number(r[4]), number(r[5])})
	}
	return []section{{ID: "trapped-and-found", Title: "Doorbells that are trapped and that are found", About: title + ".", Open: true, Tables: []table{t}}}
}

// trapParts are what an access's time is made of, in the order of the bars.
var trapParts = []struct {
	name  string
	value func(t *report.Trap) float64
}{
	{"socket", func(t *report.Trap) float64 { return t.Socket.Median }},
	{"dispatch", func(t *report.Trap) float64 { return t.Dispatch.Median }},
	{"effect", func(t *report.Trap) float64 { return t.Effect.Median }},
}

func (d *drawer) traps() []section {
	if len(d.r.Traps) == 0 {
		return nil
	}
	s := section{
		ID: "traps", Title: "One access of each class",
		About: sentences("Socket: messages and threads. Dispatch: what an access without any effect takes in the device. Effect: what this one takes beyond it. These are parts of the mean, p50 and p99 quantiles", d.r.NotTrapped()),
	}
	t := table{Words: 2, Head: []string{"class", "set-up", "p50", "p99", "socket", "dispatch", "effect"}}
	var legend []key
	for i, p := range trapParts {
		legend = append(legend, key{Class: fmt.Sprintf("p%d", i), Name: p.name})
	}
	for _, kind := range []struct {
		posted bool
		title  string
	}{{false, "Accesses that wait for their answer"}, {true, "Posted writes, in batches"}} {
		p := plot.Bars{Label: kind.title, Axis: "mean time of one access", Show: report.ShowTime, Stacked: true}
		for i := range d.r.Traps {
			x := &d.r.Traps[i]
			if x.Posted != kind.posted {
				continue
			}
			b := plot.Bar{Name: x.Class + ", " + x.Setup, Group: x.Class, Tip: x.Class + ", " + x.Setup}
			row := []cell{word(x.Class), d.setup(x.Setup), number(report.ShowTime(x.P50.Median)), number(report.ShowTime(x.P99.Median))}
			for k, q := range trapParts {
				b.Parts = append(b.Parts, plot.Part{Name: q.name, Class: legend[k].Class, Value: q.value(x)})
				row = append(row, number(report.ShowTime(q.value(x))))
			}
			p.Bars = append(p.Bars, b)
			t.Rows = append(t.Rows, row)
		}
		if len(p.Bars) > 0 {
			slices.SortStableFunc(p.Bars, func(a, b plot.Bar) int { return cmp.Compare(d.classOf(a.Name), d.classOf(b.Name)) })
			s.Pictures = append(s.Pictures, picture{Title: kind.title, Legend: legend, SVG: p.Draw()})
		}
	}
	s.Tables = append(s.Tables, t)
	return []section{s}
}

// classOf is the place of a trap's class, by the name of its bar.
func (d *drawer) classOf(name string) int {
	for i := range d.r.Traps {
		if t := &d.r.Traps[i]; name == t.Class+", "+t.Setup {
			return slices.IndexFunc(d.r.Traps, func(x report.Trap) bool { return x.Class == t.Class })
		}
	}
	return -1
}

func (d *drawer) model() (out []section) {
	for i, m := range d.r.Models() {
		t := table{Words: 1, Head: []string{"", "each"}}
		for _, x := range m.Terms {
			t.Rows = append(t.Rows, []cell{word(x.Name), number(report.ShowTime(x.NS))})
		}
		own := table{Words: 1, Head: []string{"a phase by itself", "time"}}
		for _, x := range m.Own {
			own.Rows = append(own.Rows, []cell{word(x.Phase), number(report.ShowTime(x.NS))})
		}
		out = append(out, section{ID: fmt.Sprintf("model-%d", i), Title: m.Title, Open: true, About: m.Fit() + ".", Tables: []table{t, own}})
	}
	return out
}

func (d *drawer) compared(c *report.Comparison) *table {
	t := &table{Words: 4, Head: []string{"scenario", "case", "set-up", "what", "then", "now", "ratio", "difference", "better"}}
	for _, r := range c.Rows {
		for i := range r.Values {
			v := &r.Values[i]
			row := []cell{word(where(r.Now.Scenario, r.Now.Where)), word(r.Now.Case), d.setup(r.Now.Setup)}
			if i > 0 {
				row = []cell{word(""), word(""), word("")}
			}
			t.Rows = append(t.Rows, append(row, word(v.Name), number(v.Then), number(v.Now), number(v.ShowRatio()), number(v.Verdict.String()), number(v.Better)))
		}
	}
	return t
}

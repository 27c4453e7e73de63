package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// Text writes the report as tables for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.head())
	for _, where := range places {
		r.ablation(&b, where.name, where.title)
	}
	for i := range r.Scenarios {
		r.scenario(&b, &r.Scenarios[i])
	}
	r.bells(&b)
	r.traps(&b)
	r.model(&b)
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "\nNOT MEASURED: %s\n", e)
	}
	return b.String()
}

// places in the order in which they are shown.
var places = []struct{ name, title string }{
	{InProcess, "in this process"}, {InMachine, "in virtual machines"},
}

func (r *Report) head() string {
	var b strings.Builder
	m := &r.Machine
	fmt.Fprintf(&b, "umbra %s, %s, took %s\n", r.Umbra, r.Began.Format("2006-01-02 15:04 MST"), ShowTime(r.Seconds*1e9))
	fmt.Fprintf(&b, "%s, %d processors, %d MiB; Linux %s, %s; load %.1f at the start\n",
		m.Processor, m.Processors, m.MemoryMiB, m.Kernel, m.Go, m.Load)
	if hint := m.Busy(); hint != "" {
		fmt.Fprintf(&b, "NOTE: %s\n", hint)
	}
	if e := r.Emulator; e != nil {
		fmt.Fprintf(&b, "QEMU %s with %s\n", e.QEMU, e.Accelerator)
	}
	fmt.Fprintf(&b, "%s; medians, ± is the median absolute deviation", r.Repetitions())
	if r.Run.Quick {
		b.WriteString("; QUICK: small parameters")
	}
	b.WriteString("\n\nSet-ups\n")
	width := 0
	for _, s := range r.Setups {
		width = max(width, len(s.Name))
	}
	for _, s := range r.Setups {
		options := "defaults"
		if len(s.Options) > 0 {
			var o []string
			for _, k := range slices.Sorted(maps.Keys(s.Options)) {
				o = append(o, k+"="+s.Options[k])
			}
			options = strings.Join(o, " ")
		}
		fmt.Fprintf(&b, "  %-*s  %s [%s]\n", width, s.Name, s.About, options)
	}
	return b.String()
}

// Repetitions says how often each thing was measured, where it was.
func (r *Report) Repetitions() string {
	var parts []string
	here := slices.ContainsFunc(r.Results, func(x Result) bool { return x.Where == InProcess })
	if here || len(r.Traps) > 0 || r.Run.Boots == 0 {
		parts = append(parts, HowMany(r.Run.Repeat, "turn")+" of each measurement")
	}
	if r.Run.Boots > 0 {
		parts = append(parts, HowMany(r.Run.Boots, "boot")+" of each machine")
	}
	return strings.Join(parts, ", ")
}

// shown are the counts that the tables have columns for.
func shown() (names []string, titles []string) {
	for _, c := range Counts {
		if c.Column {
			names, titles = append(names, c.Name), append(titles, c.Title)
		}
	}
	return names, titles
}

func showCount(name string, v float64) string {
	for _, c := range Counts {
		if c.Name == name && c.Time {
			return ShowTime(v)
		}
	}
	return ShowCount(v)
}

// ablationColumn is columns that tell a set-up by another.
type ablationColumn struct {
	heads []string
	about string
	value func(a *Ablation) float64 // 0 if there is none
	cells func(a *Ablation) []string
}

var ablationColumns = []ablationColumn{
	{[]string{"ratio", "worst"}, "ratios to pass-through, geometric mean and worst case", func(a *Ablation) float64 { return a.Mean },
		func(a *Ablation) []string { return []string{ShowRatio(a.Mean), ShowRatio(a.Worst)} }},
	{[]string{"same map", "worst"}, "same map: to the whole card with as much of it mapped, and the worst scenario", func(a *Ablation) float64 { return a.SameMean },
		func(a *Ablation) []string {
			return []string{ShowRatio(a.SameMean), ShowRatio(a.SameWorst) + " " + a.SameWorstOf}
		}},
	{[]string{"naive"}, "naive: how many times as long that takes", func(a *Ablation) float64 { return a.NaiveMean },
		func(a *Ablation) []string { return []string{ShowRatio(a.NaiveMean)} }},
}

func (r *Report) ablation(b *strings.Builder, where, title string) {
	rows := r.Ablation(where)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\nAll set-ups %s: sums over the %s that each of them ran", title, HowMany(rows[0].Cases, "case"))
	names, titles := shown()
	g := grid{indent: "  ", head: []string{"set-up", "end to end"}}
	// Columns that no set-up has, for what they are told by was not measured, are left out.
	var columns []ablationColumn
	for _, c := range ablationColumns {
		if slices.ContainsFunc(rows, func(a Ablation) bool { return c.value(&a) > 0 }) {
			columns = append(columns, c)
			g.head = append(g.head, c.heads...)
			b.WriteString("; " + c.about)
		}
	}
	b.WriteString("\n")
	g.head = append(g.head, titles...)
	rated := slices.ContainsFunc(rows, func(a Ablation) bool { return a.Mean > 0 })
	if rated {
		g.head = append(g.head, "worst of")
	}
	for _, a := range rows {
		row := []string{a.Setup, ShowTime(a.NS)}
		for _, c := range columns {
			if c.value(&a) > 0 {
				row = append(row, c.cells(&a)...)
			} else {
				row = append(row, slices.Repeat([]string{none}, len(c.heads))...)
			}
		}
		for _, n := range names {
			row = append(row, have(a.Counts, n, func(v float64) string { return showCount(n, v) }))
		}
		if a.Setup == PassThrough {
			a.WorstCase = none
		}
		if rated {
			row = append(row, a.WorstCase)
		}
		g.row(row...)
	}
	g.write(b)
	if rows := r.ExplainCounts(false); len(rows) > 0 && !r.countsExplained(where) {
		b.WriteString("  Columns here and below, medians of what was counted meanwhile:\n")
		legend(b, rows)
	}
	r.byScenario(b, where)
}

// countsExplained tells whether a place before this one had a table, and with it the legend.
func (r *Report) countsExplained(where string) bool {
	return where != InProcess && len(r.Ablation(InProcess)) > 0
}

// byScenario is the table of the ratios that the demands are about.
func (r *Report) byScenario(b *strings.Builder, where string) {
	pairs := r.pairs(where)
	if len(pairs) == 0 {
		return
	}
	b.WriteString("\n  By scenario, geometric means of the cases\n")
	g := grid{indent: "  ", head: []string{"scenario"}}
	for _, p := range pairs {
		g.head = append(g.head, p.setup+" / "+p.by)
	}
	for i := range r.Scenarios {
		row, some := []string{r.Scenarios[i].Name}, false
		for _, p := range pairs {
			cell := none
			if v := r.scenarioRatio(where, r.Scenarios[i].Name, p); v > 0 {
				cell, some = ShowRatio(v), true
			}
			row = append(row, cell)
		}
		if some {
			g.row(row...)
		}
	}
	g.write(b)
}

func have[T any](m map[string]T, name string, show func(T) string) string {
	if v, ok := m[name]; ok {
		return show(v)
	}
	return none
}

func (r *Report) scenario(b *strings.Builder, s *Scenario) {
	for _, where := range places {
		rows := r.Of(s.Name, where.name)
		if len(rows) == 0 {
			continue
		}
		title := s.Title
		if where.name == InMachine {
			title += ", " + where.title
		}
		fmt.Fprintf(b, "\n%s [%s]\n", title, s.Name)
		counts(b, rows)
		if note := r.Without(rows); note != "" {
			fmt.Fprintf(b, "  %s\n", note)
		}
		for _, p := range Parts(rows) {
			p.write(b, s.Name, where.name, rows)
		}
		if note := Few(rows); note != "" {
			fmt.Fprintf(b, "  %s\n", note)
		}
	}
}

// Without names the set-ups of the run that none of a scenario's results is of, "" if there
// are none.
func (r *Report) Without(rows []*Result) string {
	var names []string
	for _, s := range r.Setups {
		if !slices.ContainsFunc(rows, func(x *Result) bool { return x.Setup == s.Name }) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "Not measured with " + strings.Join(names, ", ")
}

// counts is the table of a scenario's times and counts.
func counts(b *strings.Builder, rows []*Result) {
	names, titles := shown()
	g := grid{indent: "  ", left: 2, head: slices.Concat([]string{"case", "set-up", "time", "±", "ratio"}, titles)}
	last := ""
	for _, x := range rows {
		ratio := none
		if x.Ratio != nil {
			ratio = ShowRatio(x.Ratio.Median)
		}
		row := []string{x.Case, x.Setup, ShowTime(x.Total.NS.Median), spread(x.Total.NS), ratio}
		if x.Case == last {
			row[0] = ""
		}
		last = x.Case
		for _, n := range names {
			row = append(row, have(x.Total.Counts, n, func(s stats.Summary) string { return showCount(n, s.Median) }))
		}
		g.row(row...)
	}
	g.write(b)
}

// Part is what one table beside a scenario's times has for columns: its phases, or its figures.
type Part struct {
	Title  string
	Figure bool
	Names  []string
}

// Parts are the phases and the figures that any of some results has. A single phase is all of the
// time, which stands elsewhere; beside figures it is shown, for some are of a phase.
func Parts(rows []*Result) (out []Part) {
	phases := Part{Title: "Phases: what the time is made of; of one that ran more than once, the time of one"}
	figures := Part{Title: "Figures: what else was measured", Figure: true}
	for _, x := range rows {
		for _, p := range x.Phases {
			if !slices.Contains(phases.Names, p.Name) {
				phases.Names = append(phases.Names, p.Name)
			}
		}
		for _, f := range x.Figures {
			if !slices.Contains(figures.Names, f.Name) {
				figures.Names = append(figures.Names, f.Name)
			}
		}
	}
	if len(phases.Names) > 0 && len(phases.Names)+len(figures.Names) > 1 {
		out = append(out, phases)
	}
	if len(figures.Names) > 0 {
		out = append(out, figures)
	}
	return out
}

// Cells are what a result has of the part, "" for what it has not.
func (p *Part) Cells(x *Result) (out []string) {
	for _, n := range p.Names {
		cell := ""
		if f := x.figure(n); p.Figure && f != nil {
			cell = x.Show(f)
		}
		if i := slices.IndexFunc(x.Phases, func(p Phase) bool { return p.Name == n }); !p.Figure && i >= 0 {
			cell = ShowTime(x.Phases[i].NS.Median)
		}
		out = append(out, cell)
	}
	return out
}

// write is its table for a terminal, with what its columns are below.
func (p *Part) write(b *strings.Builder, scenario, where string, rows []*Result) {
	fmt.Fprintf(b, "\n  %s\n", p.Title)
	g := grid{indent: "  ", left: 2, head: slices.Concat([]string{"case", "set-up"}, p.Names)}
	last := ""
	for _, x := range rows {
		cells := p.Cells(x)
		if slices.Max(cells) == "" { // none of them
			continue
		}
		row := []string{x.Case, x.Setup}
		if x.Case == last {
			row[0] = ""
		}
		last = x.Case
		for _, c := range cells {
			row = append(row, cmp.Or(c, none))
		}
		g.row(row...)
	}
	g.write(b)
	legend(b, Explain(scenario, where, p.Names, p.Figure))
}

// Of are the results of a scenario that were measured there.
func (r *Report) Of(scenario, where string) (rows []*Result) {
	for i := range r.Results {
		if x := &r.Results[i]; x.Scenario == scenario && x.Where == where {
			rows = append(rows, x)
		}
	}
	return rows
}

func (r *Report) traps(b *strings.Builder) {
	if len(r.Traps) == 0 {
		return
	}
	b.WriteString("\nOne access of each class, as a client of the socket sees it: quantiles, and the parts of the mean (socket, dispatch, effect)\n")
	g := grid{indent: "  ", left: 2, head: []string{"class", "set-up", "p50", "p99", "±", "socket", "dispatch", "effect"}}
	order := map[string]int{}
	for _, t := range r.Traps {
		if _, ok := order[t.Class]; !ok {
			order[t.Class] = len(order)
		}
	}
	rows := slices.SortedStableFunc(slices.Values(r.Traps), func(x, y Trap) int { return cmp.Compare(order[x.Class], order[y.Class]) })
	last := ""
	for _, t := range rows {
		row := []string{t.Class, t.Setup, ShowTime(t.P50.Median), ShowTime(t.P99.Median), spread(t.P50),
			ShowTime(t.Socket.Median), ShowTime(t.Dispatch.Median), ShowTime(t.Effect.Median)}
		if t.Class == last {
			row[0] = ""
		}
		last = t.Class
		g.row(row...)
	}
	g.write(b)
	if note := r.NotTrapped(); note != "" {
		fmt.Fprintf(b, "  %s\n", note)
	}
}

// NotTrapped says why set-ups whose guest maps something have fewer accesses, "" if there are
// none.
func (r *Report) NotTrapped() string {
	var names []string
	for _, s := range r.Setups {
		for _, option := range []string{OptMap, OptWholeMap} {
			if v := s.Options[option]; v != "" && v != "none" {
				names = append(names, s.Name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("With %s what is mapped is reached without a trap, and has no row; nor has a posted write, for QEMU waits for each once anything is mapped", strings.Join(names, ", "))
}

func (r *Report) model(b *strings.Builder) {
	for _, x := range r.Models() {
		fmt.Fprintf(b, "\n%s: %s\n", x.Title, x.Model.Fit())
		g := grid{indent: "  ", head: []string{"", "each"}}
		for _, t := range x.Terms {
			g.row(t.Name, ShowTime(t.NS))
		}
		g.write(b)
	}
}

// Models are the cost models that the report has, with what they are called.
func (r *Report) Models() (out []TitledModel) {
	if r.Model != nil {
		out = append(out, TitledModel{"Cost model, by the time measured in traps and shadows", r.Model})
	}
	if r.Counted != nil {
		out = append(out, TitledModel{"Cost model, by counts alone", r.Counted})
	}
	return out
}

// TitledModel is a model with its title.
type TitledModel struct {
	Title string
	*Model
}

// Fit says how good it is.
func (m *Model) Fit() string {
	return fmt.Sprintf("least squares over the medians of %s, each of %s with its own time whatever the set-up; what is left over is %.0f %% of a phase's time (root mean square; R² %.3f)",
		HowMany(m.N, "phase"), HowMany(len(m.Own), "kind"), m.Residual*100, m.R2)
}

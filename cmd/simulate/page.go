package simulate

import (
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/umbra-gpu/umbra/cmd/plot"
)

//go:embed page.html
var source string

var layout = plot.New(source)

type content struct {
	Name     string
	Facts    [][2]string
	Sections []plot.Section
}

// WritePage writes the report as one HTML page that stands alone.
func (r *Report) WritePage(w io.Writer) error {
	p := content{Name: r.Name, Facts: [][2]string{{"What", r.About}, {"Seed", fmt.Sprint(r.Seed)}}}
	if r.Axis != "" {
		p.Sections = []plot.Section{r.sweepSection()}
		return layout.Execute(w, &p)
	}
	p.Facts = append(p.Facts, [2]string{"Simulated", r.Card.String() + " of card time with each policy"})
	p.Sections = append(p.Sections, r.summary())
	for i := range r.Runs {
		p.Sections = append(p.Sections, r.Runs[i].section(i, r.Card))
	}
	return layout.Execute(w, &p)
}

func class(i int) string { return fmt.Sprintf("s%d", (i+1)%plot.Colours) }

func word(s string) plot.Cell   { return plot.Cell{Text: s, Word: true} }
func number(s string) plot.Cell { return plot.Cell{Text: s} }

func asPercent(v float64) string      { return fmt.Sprintf("%.1f %%", 100*v) }
func asTime(ns float64) string        { return brief(time.Duration(ns)) }
func asSeconds(v float64) string      { return strconv.FormatFloat(v, 'g', 4, 64) + " s" }
func plainly(v float64) string        { return strconv.FormatFloat(v, 'g', 4, 64) }
func seconds(d time.Duration) float64 { return d.Seconds() }

func points(v float64) string { return fmt.Sprintf("%.2f points", 100*v) }

// summary compares the policies.
func (r *Report) summary() plot.Section {
	s := plot.Section{ID: "policies", Title: "Policies", Open: true,
		About: Legend}
	t := plot.Table{Words: 1, Head: []string{"policy", "share error", "Jain", "efficiency", "lag"}}
	shares := plot.Bars{Label: "Shares by process and policy", Axis: "part of the card's time", Show: asPercent}
	lags := plot.Bars{Label: "Lag by policy", Axis: "largest lag", Show: asTime}
	var legend []plot.Key
	for i := range r.Runs {
		x := &r.Runs[i]
		legend = append(legend, plot.Key{Class: class(i), Name: x.Name})
		t.Rows = append(t.Rows, []plot.Cell{{Text: x.Name, Class: class(i), Word: true}, number(said(x.ShareError, points)), number(said(x.Jain, index)), number(asPercent(x.Efficiency)), number(said(x.Lag, brief))})
		if x.Lag != nil {
			lags.Bars = append(lags.Bars, plot.Bar{Name: x.Name, Group: x.Name, Class: class(i), Value: float64(*x.Lag), Tip: x.Name + ": " + brief(*x.Lag)})
		}
	}
	for k := range r.Runs[0].Clients[:min(len(r.Runs[0].Clients), most)] {
		for i := range r.Runs {
			c := &r.Runs[i].Clients[k]
			shares.Bars = append(shares.Bars, plot.Bar{Name: c.Name, Group: c.Name, Class: class(i), Value: c.Share,
				Tip: fmt.Sprintf("%s, %s: %s, owed %s", c.Name, r.Runs[i].Name, percent(c.Share), said(c.Ideal, percent))})
		}
	}
	s.Tables = []plot.Table{t}
	s.Pictures = []plot.Picture{{Title: "Share of the card's busy time", Legend: legend, SVG: shares.Draw()}}
	if len(lags.Bars) > 0 {
		s.Pictures = append(s.Pictures, plot.Picture{Title: "Largest lag", Legend: legend, SVG: lags.Draw()})
	}
	return s
}

// section is one policy's.
func (x *Run) section(i int, card time.Duration) plot.Section {
	s := plot.Section{ID: fmt.Sprintf("run%d", i), Title: x.Name,
		About: fmt.Sprintf("Share error %s, Jain %s, efficiency %s, lag %s.", said(x.ShareError, points), said(x.Jain, index), asPercent(x.Efficiency), said(x.Lag, brief))}
	if x.NoIdeal != "" {
		s.About += " There is no ideal: " + x.NoIdeal + "."
	}
	shares := plot.Lines{Label: "Shares over time, " + x.Name, XAxis: "card time", YAxis: "share in each window", ShowX: asSeconds, ShowY: asPercent, Width: plot.HalfWidth, Plain: true}
	behind := plot.Lines{Label: "Lag over time, " + x.Name, XAxis: "card time", YAxis: "behind; below 0, ahead", ShowX: asSeconds, ShowY: asTime, Width: plot.HalfWidth, Plain: true}
	latency := plot.Bars{Label: "Latency, " + x.Name, Axis: "from doorbell to end, median; the line is up to the 99th percentile", Show: asTime}
	t := plot.Table{Words: 1, Head: []string{"process", "share", "ideal", "lag", "requests", "latency p50", "p99", "worst"}}
	var legend []plot.Key
	for k := range x.Clients {
		c := &x.Clients[k]
		t.Rows = append(t.Rows, []plot.Cell{{Text: c.Name, Class: class(k), Word: true}, number(percent(c.Share)), number(said(c.Ideal, percent)), number(said(c.Lag, brief)), number(fmt.Sprint(c.Done)), number(brief(c.Median)), number(brief(c.P99)), number(brief(c.Worst))})
		if k >= plot.Colours {
			t.Rows[k][0] = word(c.Name) // no colour is left
			continue
		}
		legend = append(legend, plot.Key{Class: class(k), Name: c.Name})
		a, b := plot.Series{Name: c.Name, Class: class(k)}, plot.Series{Name: c.Name, Class: class(k)}
		for w := range c.Shares {
			at := seconds(card) * float64(w+1) / float64(len(c.Shares))
			a.Points = append(a.Points, plot.Point{X: at, Y: c.Shares[w]})
			if x.NoIdeal == "" {
				b.Points = append(b.Points, plot.Point{X: at, Y: float64(c.Behind[w])})
			}
		}
		shares.Series, behind.Series = append(shares.Series, a), append(behind.Series, b)
		latency.Bars = append(latency.Bars, plot.Bar{Name: c.Name, Group: c.Name, Class: class(k), Value: float64(c.Median), Q1: float64(c.Median), Q3: float64(c.P99),
			Tip: fmt.Sprintf("%s: median %s, 99th percentile %s, worst %s", c.Name, brief(c.Median), brief(c.P99), brief(c.Worst))})
	}
	s.Tables = []plot.Table{t}
	s.Pictures = []plot.Picture{{Title: "Shares over time", Legend: legend, SVG: shares.Draw(), Half: true}}
	if x.NoIdeal == "" {
		s.Pictures = append(s.Pictures, plot.Picture{Title: "Lag over time", Legend: legend, SVG: behind.Draw(), Half: true})
	}
	s.Pictures = append(s.Pictures, plot.Picture{Title: "Latency", Legend: legend, SVG: latency.Draw()})
	return s
}

// sweepSection is a program's runtime along the axis.
func (r *Report) sweepSection() plot.Section {
	s := plot.Section{ID: "sweep", Title: "Runtime of the program", Open: true, About: r.About}
	p := plot.Lines{Label: "Runtime of the program", XAxis: r.Axis, YAxis: "runtime", ShowX: plainly, ShowY: asTime, Width: plot.FullWidth}
	t := plot.Table{Words: 1, Head: []string{"policy", "flatness", "slope"}}
	for _, at := range r.At {
		t.Head = append(t.Head, plainly(at))
	}
	var legend []plot.Key
	for i := range r.Runs {
		x := &r.Runs[i]
		legend = append(legend, plot.Key{Class: class(i), Name: x.Name})
		line := plot.Series{Name: x.Name, Class: class(i)}
		row := []plot.Cell{{Text: x.Name, Class: class(i), Word: true}, number(percent(x.Flatness)), number(fmt.Sprintf("%+.3f", x.Slope))}
		for k, d := range x.Runtimes {
			line.Points = append(line.Points, plot.Point{X: r.At[k], Y: float64(d)})
			row = append(row, number(brief(d)))
		}
		p.Series = append(p.Series, line)
		t.Rows = append(t.Rows, row)
	}
	s.Tables = []plot.Table{t}
	s.Pictures = []plot.Picture{{Title: "Runtime against " + r.Axis, Legend: legend, SVG: p.Draw()}}
	return s
}

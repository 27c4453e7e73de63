package result

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/umbra-gpu/umbra/cmd/bench/plot"
)

// figure is a plot of the page.
type figure struct {
	Title, About string
	SVG          template.HTML
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>umbra bench</title>
<style>body{font:15px sans-serif;max-width:1100px;margin:2em auto} svg{max-width:100%;height:auto}</style>
<h1>umbra bench</h1>
{{range .Notes}}<p>{{.}}</p>
{{end}}{{range .Figures}}<h2>{{.Title}}</h2>
<p>{{.About}}</p>
{{.SVG}}
{{end}}</html>
`))

// Page writes the plots as one HTML page that loads nothing.
func (r *Run) Page(w io.Writer) error {
	groups := only(r.Groups(false), func(g Group) bool { return g.Scenario != Transport })
	base := r.baselines()[0]
	var figures []figure
	for _, where := range wheres(groups) {
		here := only(groups, func(g Group) bool { return g.Where == where })
		ratio := panels{ideal: base, value: func(g *Group) *Spread {
			if g.Setup == base {
				return nil
			}
			return g.Ratio
		}}
		traps := panels{value: func(g *Group) *Spread { return &g.Traps }}
		for _, f := range []struct {
			title, about string
			draw         func() ([]byte, error)
		}{
			{"time by that of " + base, "Left of the line is faster. Bars are 95 % intervals of the median.", func() ([]byte, error) { return ratio.draw(here) }},
			{"traps", "Logarithmic. A set-up without a point has no traps in that scenario, or does not run it.", func() ([]byte, error) { return traps.draw(here) }},
			{"many guests", "Bytes that all guests together copy in a second. An ideal server copies as much for many as for one.", func() ([]byte, error) { return r.crowd(where) }},
		} {
			svg, err := f.draw()
			if err != nil {
				return err
			}
			if svg != nil {
				figures = append(figures, figure{whereTitles[where] + ": " + f.title, f.about, template.HTML(svg)})
			}
		}
	}
	return page.Execute(w, struct {
		Notes   []string
		Figures []figure
	}{r.Notes, figures})
}

// panels draws one panel for each set-up, with a row for each scenario.
type panels struct {
	value func(*Group) *Spread // nil: there is none
	ideal string               // the set-up whose value is 1; "" for none
}

func (f *panels) draw(groups []Group) ([]byte, error) {
	groups = only(groups, func(g Group) bool {
		s := f.value(&g)
		return s != nil && s.Median > 0 && !math.IsInf(s.Median, 0)
	})
	if len(groups) == 0 {
		return nil, nil
	}
	least, most := math.Inf(1), math.Inf(-1)
	for i := range groups {
		lo, hi := ends(f.value(&groups[i]))
		least, most = min(least, lo), max(most, hi)
	}
	if f.ideal != "" {
		least, most = min(least, 1/1.2), max(most, 1.2)
	}
	scenarios := namesOf(groups, func(g *Group) string { return g.Scenario })
	var all []*plot.Panel
	for i, setup := range namesOf(groups, func(g *Group) string { return g.Setup }) {
		p := plot.New(setup)
		p.LogX(least/1.3, most*2.5) // room for the labels
		row := p.Rows(scenarios, i == 0)
		if f.ideal != "" {
			p.Dashed(plot.Ideal, plotter.XY{X: 1, Y: p.Y.Min}, plotter.XY{X: 1, Y: p.Y.Max})
			p.Text(plot.Ideal, 1, p.Y.Min, f.ideal)
		}
		for k := range groups {
			g := &groups[k]
			if g.Setup != setup {
				continue
			}
			s, y := f.value(g), row(slices.Index(scenarios, g.Scenario))
			lo, hi := ends(s)
			p.Line(plot.Ink, plotter.XY{X: lo, Y: y}, plotter.XY{X: hi, Y: y})
			p.Dot(plot.Ink, s.Median, y)
			text := count(s.Median)
			if f.ideal != "" {
				text = fmt.Sprintf("%.2f", s.Median)
			}
			p.Text(plot.Ink, hi, y, text)
		}
		all = append(all, p)
	}
	return plot.SVG(float64(len(all))*2.2+1, float64(len(scenarios)+3)*0.28, all...)
}

// ends are the ends of the interval, or the median twice.
func ends(s *Spread) (lo, hi float64) {
	if s.Low == nil || *s.Low <= 0 {
		return s.Median, s.Median
	}
	return *s.Low, *s.High
}

// crowd draws the throughput against the number of guests, a panel for each set-up.
func (r *Run) crowd(where string) ([]byte, error) {
	t := r.table()
	in := func(k Key) bool { return k.Where == where && k.Scenario == "crowd" }
	of := func(k Key) (guests float64, s Spread) {
		n, _ := strconv.Atoi(strings.TrimPrefix(k.Case, "guests="))
		return float64(n), spread(t.by[k]["B/s"], 1.0/(1<<30))
	}
	var most, fastest float64
	for _, k := range t.keys {
		if in(k) {
			n, s := of(k)
			_, hi := ends(&s)
			most, fastest = max(most, n), max(fastest, hi)
		}
	}
	if most < 2 {
		return nil, nil
	}
	var all []*plot.Panel
	for _, setup := range distinct(t.keys, in, func(k Key) string { return k.Setup }) {
		p := plot.New(setup)
		p.X.Label.Text, p.Y.Label.Text = "guests", "GiB/s"
		p.LogX(0.9, most*1.1)
		p.Y.Min, p.Y.Max = 0, fastest*1.1
		var at plotter.XYs
		var ticks []float64
		for _, k := range t.keys {
			if !in(k) || k.Setup != setup {
				continue
			}
			n, s := of(k)
			lo, hi := ends(&s)
			p.Line(plot.Grey, plotter.XY{X: n, Y: lo}, plotter.XY{X: n, Y: hi})
			at, ticks = append(at, plotter.XY{X: n, Y: s.Median}), append(ticks, n)
		}
		p.TicksX(ticks)
		p.Line(plot.Ink, at...)
		p.Dashed(plot.Ideal, plotter.XY{X: 1, Y: at[0].Y}, plotter.XY{X: most, Y: at[0].Y})
		p.Text(plot.Ideal, 1, at[0].Y+fastest/30, "ideal: as one guest")
		all = append(all, p)
	}
	return plot.SVG(float64(len(all))*3, 3, all...)
}

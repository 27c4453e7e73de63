package result

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	ink   = color.RGBA{0x1f, 0x4e, 0x79, 0xff}
	ideal = color.RGBA{0xb0, 0x3a, 0x2e, 0xff}
	grey  = color.RGBA{0xbb, 0xbb, 0xbb, 0xff}
)

// Page writes the plots as one HTML page that loads nothing.
func (r *Run) Page(w io.Writer) error {
	groups := only(r.Groups(false), func(g Group) bool { return g.Scenario != Transport })
	var b bytes.Buffer
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>umbra bench</title>\n" +
		"<style>body{font:15px sans-serif;max-width:1100px;margin:2em auto} svg{max-width:100%;height:auto}</style>\n<h1>umbra bench</h1>\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(n))
	}
	base, idealText := r.baselines()[0], r.baselines()[0]
	if r.hasOld() {
		base, idealText = "the old binary", "old"
	}
	for _, where := range places(groups) {
		here := only(groups, func(g Group) bool { return g.Where == where })
		title := whereTitles[where]
		ratio := panels{
			ideal: 1, idealText: idealText,
			value: func(g *Group) *Spread {
				if g.Setup == r.baselines()[0] && !r.hasOld() {
					return nil
				}
				return g.Ratio
			},
		}
		traps := panels{value: func(g *Group) *Spread { return &g.Traps }}
		for _, f := range []struct {
			title, about string
			draw         func() ([]byte, error)
		}{
			{"time by that of " + base, "Left of the line is faster. Bars are 95 % intervals of the median.", func() ([]byte, error) { return ratio.draw(here) }},
			{"traps", "Logarithmic. A set-up without a point has no traps in that scenario, or does not run it.", func() ([]byte, error) { return traps.draw(here) }},
			{"many guests", "Bytes copied in a second by all guests together. An ideal server copies as much for many as for one.", func() ([]byte, error) { return r.crowd(where) }},
		} {
			svg, err := f.draw()
			if err != nil {
				return err
			}
			if svg != nil {
				fmt.Fprintf(&b, "<h2>%s: %s</h2>\n<p>%s</p>\n%s\n", title, html.EscapeString(f.title), f.about, svg)
			}
		}
	}
	b.WriteString("</html>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// newPlot is a plot in a sans-serif font.
func newPlot() *plot.Plot {
	p := plot.New()
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		f.Variant, f.Size = "Sans", vg.Points(9)
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	return p
}

// svgOf renders plots side by side.
func svgOf(plots []*plot.Plot, width, height vg.Length) ([]byte, error) {
	c := vgsvg.New(width, height)
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(6), PadLeft: vg.Points(12), PadRight: vg.Points(12), PadTop: vg.Points(4)}
	for i, at := range plot.Align([][]*plot.Plot{plots}, tiles, draw.New(c))[0] {
		plots[i].Draw(at)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	_, svg, _ := bytes.Cut(b.Bytes(), []byte("<svg"))
	return append([]byte("<svg"), svg...), nil
}

// panels draws one panel for each set-up, with a row for each scenario.
type panels struct {
	value     func(*Group) *Spread // nil: there is none
	ideal     float64              // 0: none
	idealText string
}

func (f *panels) draw(groups []Group) ([]byte, error) {
	groups = only(groups, func(g Group) bool {
		s := f.value(&g)
		return s != nil && s.Median > 0 && !math.IsInf(s.Median, 0)
	})
	if len(groups) == 0 {
		return nil, nil
	}
	scenarios := namesOf(groups, func(g *Group) string { return g.Scenario })
	slices.Reverse(scenarios) // the first one on top
	least, most := math.Inf(1), math.Inf(-1)
	for i := range groups {
		lo, hi := ends(f.value(&groups[i]))
		least, most = min(least, lo), max(most, hi)
	}
	if f.ideal > 0 {
		least, most = min(least, f.ideal/1.2), max(most, f.ideal*1.2)
	}
	var plots []*plot.Plot
	for i, setup := range namesOf(groups, func(g *Group) string { return g.Setup }) {
		p := newPlot()
		p.Title.Text = setup
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{}
		p.X.Min, p.X.Max = least/1.3, most*2.5 // room for the labels
		p.Y.Min, p.Y.Max = -0.7, float64(len(scenarios))-0.3
		var names []plot.Tick
		for y, s := range scenarios {
			if i > 0 {
				s = ""
			}
			names = append(names, plot.Tick{Value: float64(y), Label: s})
		}
		p.Y.Tick.Marker, p.Y.Tick.Length = plot.ConstantTicks(names), 0
		if err := f.points(p, groups, setup, scenarios); err != nil {
			return nil, err
		}
		plots = append(plots, p)
	}
	return svgOf(plots, vg.Length(len(plots))*2.2*vg.Inch+vg.Inch, vg.Length(len(scenarios)+3)*0.28*vg.Inch)
}

// ends are the ends of the interval, or the median twice.
func ends(s *Spread) (lo, hi float64) {
	if s.Low == nil || *s.Low <= 0 {
		return s.Median, s.Median
	}
	return *s.Low, *s.High
}

// points draws the points of one set-up with their intervals and values, and the ideal.
func (f *panels) points(p *plot.Plot, groups []Group, setup string, scenarios []string) error {
	if f.ideal > 0 {
		if err := addLine(p, ideal, true, plotter.XYs{{X: f.ideal, Y: p.Y.Min}, {X: f.ideal, Y: p.Y.Max}}); err != nil {
			return err
		}
		if err := addLabels(p, ideal, plotter.XYs{{X: f.ideal, Y: p.Y.Min}}, []string{f.idealText}); err != nil {
			return err
		}
	}
	var at, labels plotter.XYs // labels stand right of the intervals
	var values []string
	for i := range groups {
		g := &groups[i]
		if g.Setup != setup {
			continue
		}
		s, y := f.value(g), float64(slices.Index(scenarios, g.Scenario))
		lo, hi := ends(s)
		if err := addLine(p, ink, false, plotter.XYs{{X: lo, Y: y}, {X: hi, Y: y}}); err != nil {
			return err
		}
		at, labels = append(at, plotter.XY{X: s.Median, Y: y}), append(labels, plotter.XY{X: hi, Y: y})
		values = append(values, count(s.Median))
		if f.ideal > 0 {
			values[len(values)-1] = fmt.Sprintf("%.2f", s.Median)
		}
	}
	dots, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: ink, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
	p.Add(dots)
	return addLabels(p, ink, labels, values)
}

func addLine(p *plot.Plot, c color.Color, dashed bool, at plotter.XYs) error {
	l, err := plotter.NewLine(at)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, vg.Points(1.5)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(l)
	return nil
}

func addLabels(p *plot.Plot, c color.Color, at plotter.XYs, text []string) error {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: text})
	if err != nil {
		return err
	}
	l.Offset = vg.Point{X: vg.Points(5), Y: vg.Points(-3)}
	for i := range l.TextStyle {
		l.TextStyle[i].Color, l.TextStyle[i].Font.Variant, l.TextStyle[i].Font.Size = c, "Sans", vg.Points(8)
	}
	p.Add(l)
	return nil
}

// logTicks are powers of ten, or 1, 2 and 5 times those where they are few.
type logTicks struct{}

func (logTicks) Ticks(least, most float64) (out []plot.Tick) {
	factors := []float64{1, 2, 5}
	if most/least > 300 {
		factors = factors[:1]
	}
	step := max(int(math.Log10(most/least))/4, 1)
	for e := int(math.Floor(math.Log10(least))); e <= int(math.Ceil(math.Log10(most))); e++ {
		for _, f := range factors {
			if v := f * math.Pow10(e); v >= least && v <= most && (len(factors) > 1 || e%step == 0) {
				text := strconv.FormatFloat(v, 'g', -1, 64)
				if v >= 1000 {
					text = strconv.FormatFloat(v, 'e', 0, 64)
				}
				out = append(out, plot.Tick{Value: v, Label: text})
			}
		}
	}
	return out
}

// crowd draws the throughput against the number of guests, a panel for each set-up.
func (r *Run) crowd(where string) ([]byte, error) {
	t := r.table()
	in := func(k Key) bool { return k.Where == where && k.Scenario == "crowd" && k.Binary == "" }
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
	var plots []*plot.Plot
	for _, setup := range distinct(t.keys, in, func(k Key) string { return k.Setup }) {
		p := newPlot()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = setup, "guests", "GiB/s"
		p.X.Scale, p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = plot.LogScale{}, 0.9, most*1.1, 0, fastest*1.1
		var at plotter.XYs
		var ticks []plot.Tick
		for _, k := range t.keys {
			if !in(k) || k.Setup != setup {
				continue
			}
			n, s := of(k)
			lo, hi := ends(&s)
			if err := addLine(p, grey, false, plotter.XYs{{X: n, Y: lo}, {X: n, Y: hi}}); err != nil {
				return nil, err
			}
			at = append(at, plotter.XY{X: n, Y: s.Median})
			ticks = append(ticks, plot.Tick{Value: n, Label: fmt.Sprint(n)})
		}
		p.X.Tick.Marker = plot.ConstantTicks(ticks)
		alone := at[0].Y
		if err := errors.Join(
			addLine(p, ink, false, at),
			addLine(p, ideal, true, plotter.XYs{{X: 1, Y: alone}, {X: most, Y: alone}}),
			addLabels(p, ideal, plotter.XYs{{X: 1, Y: alone + fastest/30}}, []string{"ideal: as one guest"}),
		); err != nil {
			return nil, err
		}
		plots = append(plots, p)
	}
	return svgOf(plots, vg.Length(len(plots))*3*vg.Inch, 3*vg.Inch)
}

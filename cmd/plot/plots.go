package plot

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// Bar is one bar: a value with its spread, or parts that add up.
type Bar struct {
	Name  string // before it; the same name in a row is written once
	Group string // bars of a group stand close together
	Tip   string
	Class string  // colour
	Value float64 // of a plain bar
	Q1    float64
	Q3    float64
	Parts []Part // of a stacked one
}

// Part of a stacked bar.
type Part struct {
	Name, Class string
	Value       float64
}

// Bars are drawn from left to right, in groups of the same name.
type Bars struct {
	Label   string
	Axis    string
	Show    func(float64) string
	Bars    []Bar
	Stacked bool
	Mark    float64 // the value that bars begin at, in place of the axis's; 0 is none
}

const (
	barHeight = 13.0
	barGap    = 3.0
	groupGap  = 9.0
	axisSpace = 42.0
)

// Draw draws them.
func (p *Bars) Draw() template.HTML {
	left := 0.0
	var values []float64
	for _, b := range p.Bars {
		left = max(left, textWidth(b.Name))
		values = append(values, b.total())
		if !p.Stacked {
			values = append(values, b.Q3)
		}
	}
	left = min(left, 300) + 14
	s := newScale(values, left, FullWidth-84, p.Stacked)
	if p.Mark != 0 {
		s = newRatioScale(values, p.Mark, left, FullWidth-84)
	}
	y := 6.0
	c := &canvas{width: FullWidth, label: p.Label}
	var body canvas
	last := ""
	for i, b := range p.Bars {
		if i > 0 {
			y += barGap
			if b.Group != p.Bars[i-1].Group {
				y += groupGap
			}
		}
		if b.Name != last {
			body.text("label", "end", left-8, y+barHeight-2.5, b.Name)
		}
		last = b.Name
		p.one(&body, s, &b, y)
		y += barHeight
	}
	bottom := y + 6
	for _, t := range s.ticks() {
		c.line("grid", s.at(t), 2, s.at(t), bottom)
		c.text("tick", "middle", s.at(t), bottom+15, tidy(p.Show(t)))
	}
	c.b.WriteString(body.b.String())
	if p.Mark != 0 {
		c.line("mark", s.at(p.Mark), 2, s.at(p.Mark), bottom)
	}
	axis := p.Axis
	if s.log {
		axis += " (logarithmic)"
	}
	c.text("axis", "middle", (left+FullWidth-84)/2, bottom+33, axis)
	c.height = bottom + axisSpace
	return template.HTML(c.String())
}

func (b *Bar) total() float64 {
	sum := b.Value
	for _, p := range b.Parts {
		sum += p.Value
	}
	return sum
}

func (p *Bars) one(c *canvas, s scale, b *Bar, y float64) {
	if !p.Stacked {
		zero := s.at(max(s.from, p.Mark))
		end := s.at(b.Value)
		c.rect(b.Class, min(zero, end), y, max(end-zero, zero-end), barHeight, b.Tip)
		if b.Q3 > b.Q1 {
			c.line("whisker", s.at(b.Q1), y+barHeight/2, s.at(b.Q3), y+barHeight/2)
			for _, q := range []float64{b.Q1, b.Q3} {
				c.line("whisker", s.at(q), y+3, s.at(q), y+barHeight-3)
			}
		}
		c.text("value", "start", max(s.at(max(b.Q3, b.Value)), zero)+6, y+barHeight-2.5, p.Show(b.Value))
		return
	}
	x := s.at(0)
	for _, q := range b.Parts {
		w := s.at(q.Value) - s.at(0)
		c.rect(q.Class, x, y, w, barHeight, b.Tip+": "+q.Name+" "+p.Show(q.Value))
		x += w
	}
	c.text("value", "start", x+6, y+barHeight-2.5, strings.TrimSpace(p.Show(b.total())))
}

// tidy takes the zeros behind a decimal point off: an axis names round numbers.
func tidy(s string) string {
	n, unit, _ := strings.Cut(s, " ")
	if strings.Contains(n, ".") {
		n = strings.TrimRight(strings.TrimRight(n, "0"), ".")
	}
	return strings.TrimSpace(n + " " + unit)
}

// Point is a measurement on a line, with its spread if there is one.
type Point struct{ X, Y, Q1, Q3 float64 }

// Series is one line.
type Series struct {
	Name, Class string
	Points      []Point
}

// Lines are drawn over two axes.
type Lines struct {
	Label        string
	XAxis, YAxis string
	ShowX, ShowY func(float64) string
	Series       []Series
	Width        float64
	Plain        bool // many points over even axes: no dots, round numbers below
}

const (
	plotHeight = 300.0
	plotLeft   = 92.0
)

// Draw draws them; nothing without a point.
func (p *Lines) Draw() template.HTML {
	var xs, ys []float64
	for _, s := range p.Series {
		for _, q := range s.Points {
			xs, ys = append(xs, q.X), append(ys, q.Y)
			if q.Q3 > q.Q1 {
				ys = append(ys, q.Q1, q.Q3)
			}
		}
	}
	if len(xs) == 0 {
		return ""
	}
	right := p.Width - 24
	x := newScale(xs, plotLeft, right, p.Plain)
	if x.log { // begins at the first value, not at the power of ten before it
		least := xs[0]
		for _, v := range xs {
			least = min(least, v)
		}
		x.from = least
	}
	bottom := plotHeight - 48
	y := newScale(ys, bottom, 26, p.Plain)
	c := &canvas{width: p.Width, height: plotHeight, label: p.Label}
	for _, t := range y.ticks() {
		c.line("grid", plotLeft, y.at(t), right, y.at(t))
		c.text("tick", "end", plotLeft-8, y.at(t)+4, tidy(p.ShowY(t)))
	}
	end := -1.0 // of the name written last: those that would run into it are left out
	named := slices.Compact(slices.Sorted(slices.Values(xs)))
	if p.Plain {
		named = x.ticks()
	}
	for _, v := range named {
		c.line("grid", x.at(v), bottom, x.at(v), bottom+5)
		if half := textWidth(p.ShowX(v)) / 2; x.at(v)-half > end {
			c.text("tick", "middle", x.at(v), bottom+19, p.ShowX(v))
			end = x.at(v) + half
		}
	}
	for _, s := range p.Series {
		var path [][2]float64
		for _, q := range s.Points {
			path = append(path, [2]float64{x.at(q.X), y.at(q.Y)})
			if q.Q3 > q.Q1 {
				c.line("whisker", x.at(q.X), y.at(q.Q1), x.at(q.X), y.at(q.Q3))
			}
		}
		c.path("line "+s.Class, path)
		for _, q := range s.Points {
			if p.Plain {
				break
			}
			c.circle(s.Class, x.at(q.X), y.at(q.Y), fmt.Sprintf("%s, %s: %s", s.Name, p.ShowX(q.X), p.ShowY(q.Y)))
		}
	}
	yAxis := p.YAxis
	if y.log {
		yAxis += " (logarithmic)"
	}
	c.text("axis", "start", 4, 12, yAxis)
	c.text("axis", "middle", (plotLeft+right)/2, plotHeight-8, p.XAxis)
	return template.HTML(c.String())
}

package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// bar is one bar: a value with its spread, or parts that add up.
type bar struct {
	name  string // before it; the same name in a row is written once
	group string // bars of a group stand close together
	tip   string
	class string  // colour
	value float64 // of a plain bar
	q1    float64
	q3    float64
	parts []part // of a stacked one
}

type part struct {
	name, class string
	value       float64
}

// bars are drawn from left to right, in groups of the same name.
type bars struct {
	label   string
	axis    string
	show    func(float64) string
	bars    []bar
	stacked bool
	mark    float64 // the value that bars begin at, in place of the axis's; 0 is none
}

const (
	barHeight = 13.0
	barGap    = 3.0
	groupGap  = 9.0
	axisSpace = 42.0
)

func (p *bars) draw() string {
	left := 0.0
	var values []float64
	for _, b := range p.bars {
		left = max(left, textWidth(b.name))
		values = append(values, b.total())
		if !p.stacked {
			values = append(values, b.q3)
		}
	}
	left = min(left, 300) + 14
	s := newScale(values, left, fullWidth-84, p.stacked)
	if p.mark != 0 {
		s = newRatioScale(values, p.mark, left, fullWidth-84)
	}
	y := 6.0
	c := &canvas{width: fullWidth, label: p.label}
	var body canvas
	last := ""
	for i, b := range p.bars {
		if i > 0 {
			y += barGap
			if b.group != p.bars[i-1].group {
				y += groupGap
			}
		}
		if b.name != last {
			body.text("label", "end", left-8, y+barHeight-2.5, b.name)
		}
		last = b.name
		p.one(&body, s, &b, y)
		y += barHeight
	}
	bottom := y + 6
	for _, t := range s.ticks() {
		c.line("grid", s.at(t), 2, s.at(t), bottom)
		c.text("tick", "middle", s.at(t), bottom+15, tidy(p.show(t)))
	}
	c.b.WriteString(body.b.String())
	if p.mark != 0 {
		c.line("mark", s.at(p.mark), 2, s.at(p.mark), bottom)
	}
	axis := p.axis
	if s.log {
		axis += " (logarithmic)"
	}
	c.text("axis", "middle", (left+fullWidth-84)/2, bottom+33, axis)
	c.height = bottom + axisSpace
	return c.String()
}

func (b *bar) total() float64 {
	sum := b.value
	for _, p := range b.parts {
		sum += p.value
	}
	return sum
}

func (p *bars) one(c *canvas, s scale, b *bar, y float64) {
	if !p.stacked {
		zero := s.at(max(s.from, p.mark))
		end := s.at(b.value)
		c.rect(b.class, min(zero, end), y, max(end-zero, zero-end), barHeight, b.tip)
		if b.q3 > b.q1 {
			c.line("whisker", s.at(b.q1), y+barHeight/2, s.at(b.q3), y+barHeight/2)
			for _, q := range []float64{b.q1, b.q3} {
				c.line("whisker", s.at(q), y+3, s.at(q), y+barHeight-3)
			}
		}
		c.text("value", "start", max(s.at(max(b.q3, b.value)), zero)+6, y+barHeight-2.5, p.show(b.value))
		return
	}
	x := s.at(0)
	for _, q := range b.parts {
		w := s.at(q.value) - s.at(0)
		c.rect(q.class, x, y, w, barHeight, b.tip+": "+q.name+" "+p.show(q.value))
		x += w
	}
	c.text("value", "start", x+6, y+barHeight-2.5, strings.TrimSpace(p.show(b.total())))
}

// tidy takes the zeros behind a decimal point off: an axis names round numbers.
func tidy(s string) string {
	n, unit, _ := strings.Cut(s, " ")
	if strings.Contains(n, ".") {
		n = strings.TrimRight(strings.TrimRight(n, "0"), ".")
	}
	return strings.TrimSpace(n + " " + unit)
}

// point is a measurement on a line.
type point struct {
	x float64
	y stats.Summary
}

type series struct {
	name, class string
	points      []point
}

// lines are drawn over two axes.
type lines struct {
	label        string
	xAxis, yAxis string
	showX, showY func(float64) string
	series       []series
	width        float64
}

const (
	plotHeight = 300.0
	plotLeft   = 92.0
)

func (p *lines) draw() string {
	var xs, ys []float64
	for _, s := range p.series {
		for _, q := range s.points {
			xs, ys = append(xs, q.x), append(ys, q.y.Q1, q.y.Q3)
		}
	}
	if len(xs) == 0 {
		return ""
	}
	right := p.width - 24
	x := newScale(xs, plotLeft, right, false)
	if x.log { // begins at the first value, not at the power of ten before it
		least := xs[0]
		for _, v := range xs {
			least = min(least, v)
		}
		x.from = least
	}
	bottom := plotHeight - 48
	y := newScale(ys, bottom, 26, false)
	c := &canvas{width: p.width, height: plotHeight, label: p.label}
	for _, t := range y.ticks() {
		c.line("grid", plotLeft, y.at(t), right, y.at(t))
		c.text("tick", "end", plotLeft-8, y.at(t)+4, tidy(p.showY(t)))
	}
	end := -1.0 // of the name written last: those that would run into it are left out
	for _, v := range slices.Compact(slices.Sorted(slices.Values(xs))) {
		c.line("grid", x.at(v), bottom, x.at(v), bottom+5)
		if half := textWidth(p.showX(v)) / 2; x.at(v)-half > end {
			c.text("tick", "middle", x.at(v), bottom+19, p.showX(v))
			end = x.at(v) + half
		}
	}
	for _, s := range p.series {
		var path [][2]float64
		for _, q := range s.points {
			path = append(path, [2]float64{x.at(q.x), y.at(q.y.Median)})
			if q.y.Q3 > q.y.Q1 {
				c.line("whisker", x.at(q.x), y.at(q.y.Q1), x.at(q.x), y.at(q.y.Q3))
			}
		}
		c.path("line "+s.class, path)
		for _, q := range s.points {
			c.circle(s.class, x.at(q.x), y.at(q.y.Median), fmt.Sprintf("%s, %s: %s", s.name, p.showX(q.x), p.showY(q.y.Median)))
		}
	}
	yAxis := p.yAxis
	if y.log {
		yAxis += " (logarithmic)"
	}
	c.text("axis", "start", 4, 12, yAxis)
	c.text("axis", "middle", (plotLeft+right)/2, plotHeight-8, p.xAxis)
	return c.String()
}

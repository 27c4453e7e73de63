// Package plot draws the page of umbra bench with gonum.org/v1/plot.
//
// The package has no state, locks or goroutines. A Panel belongs to one goroutine.
package plot

import (
	"bytes"
	"image/color"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours of what is measured, of the ideal, and of what only helps to read.
var (
	Ink   = color.RGBA{0x1f, 0x4e, 0x79, 0xff}
	Ideal = color.RGBA{0xb0, 0x3a, 0x2e, 0xff}
	Grey  = color.RGBA{0xbb, 0xbb, 0xbb, 0xff}
)

// Panel is one plot of a row of plots. It keeps its first error for SVG.
type Panel struct {
	*plot.Plot
	err error
}

// New returns an empty panel.
func New(title string) *Panel {
	p := plot.New()
	p.Title.Text = title
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		f.Variant, f.Size = "Sans", vg.Points(9)
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	return &Panel{Plot: p}
}

// Line draws a line through points.
func (p *Panel) Line(c color.Color, at ...plotter.XY) { p.line(c, nil, at) }

// Dashed draws a dashed line through points.
func (p *Panel) Dashed(c color.Color, at ...plotter.XY) {
	p.line(c, []vg.Length{vg.Points(4), vg.Points(3)}, at)
}

func (p *Panel) line(c color.Color, dashes []vg.Length, at plotter.XYs) {
	l, err := plotter.NewLine(at)
	if p.keep(err) {
		return
	}
	l.Color, l.Width, l.Dashes = c, vg.Points(1.5), dashes
	p.Add(l)
}

// Dot draws a point.
func (p *Panel) Dot(c color.Color, x, y float64) {
	s, err := plotter.NewScatter(plotter.XYs{{X: x, Y: y}})
	if p.keep(err) {
		return
	}
	s.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
	p.Add(s)
}

// Text writes right of a point.
func (p *Panel) Text(c color.Color, x, y float64, text string) {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{text}})
	if p.keep(err) {
		return
	}
	l.Offset = vg.Point{X: vg.Points(5), Y: vg.Points(-3)}
	l.TextStyle[0].Color, l.TextStyle[0].Font.Variant, l.TextStyle[0].Font.Size = c, "Sans", vg.Points(8)
	p.Add(l)
}

func (p *Panel) keep(err error) bool {
	if p.err == nil {
		p.err = err
	}
	return err != nil
}

// Rows makes the vertical axis a list of names, the first one on top, and returns the height of
// each. Panels other than the first do not repeat the names.
func (p *Panel) Rows(names []string, first bool) func(i int) float64 {
	at := func(i int) float64 { return float64(len(names) - 1 - i) }
	var ticks []plot.Tick
	for i, n := range names {
		if !first {
			n = ""
		}
		ticks = append(ticks, plot.Tick{Value: at(i), Label: n})
	}
	p.Y.Tick.Marker, p.Y.Tick.Length = plot.ConstantTicks(ticks), 0
	p.Y.Min, p.Y.Max = -0.7, float64(len(names))-0.3
	return at
}

// LogX makes the horizontal axis logarithmic.
func (p *Panel) LogX(least, most float64) {
	p.X.Scale, p.X.Tick.Marker, p.X.Min, p.X.Max = plot.LogScale{}, plot.LogTicks{Prec: -1}, least, most
}

// TicksX sets the marks of the horizontal axis.
func (p *Panel) TicksX(at []float64) {
	var ticks []plot.Tick
	for _, v := range at {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', -1, 64)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
}

// SVG renders panels side by side; width and height are in inches.
func SVG(width, height float64, panels ...*Panel) ([]byte, error) {
	var plots []*plot.Plot
	for _, p := range panels {
		if p.err != nil {
			return nil, p.err
		}
		plots = append(plots, p.Plot)
	}
	c := vgsvg.New(vg.Length(width)*vg.Inch, vg.Length(height)*vg.Inch)
	pad := vg.Points(12)
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: pad / 2, PadLeft: pad, PadRight: pad, PadTop: pad / 3}
	for i, at := range plot.Align([][]*plot.Plot{plots}, tiles, draw.New(c))[0] {
		plots[i].Draw(at)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	// Inside HTML, SVG needs neither the XML header nor names of its own.
	_, svg, _ := strings.Cut(b.String(), "<svg")
	return []byte("<svg" + namespaces.ReplaceAllString(svg, "")), nil
}

var namespaces = regexp.MustCompile(`\s+xmlns(:xlink)?="[^"]*"`)

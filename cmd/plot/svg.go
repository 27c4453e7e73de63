package plot

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// canvas collects the elements of one picture. Sizes are in its own units, which
// a browser scales to the width there is.
type canvas struct {
	b             strings.Builder
	width, height float64
	label         string // for who cannot see it
}

// Widths of a picture.
const (
	FullWidth = 860.0
	HalfWidth = 460.0
)

const (
	charWidth  = 6.9 // of the text, on average
	lineHeight = 20.0
)

func textWidth(s string) float64 { return float64(utf8.RuneCountInString(s)) * charWidth }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.add(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

// rect with a text that appears when somebody points at it.
func (c *canvas) rect(class string, x, y, w, h float64, tip string) {
	c.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="1.5"><title>%s</title></rect>`,
		class, x, y, max(w, 1), h, html.EscapeString(tip))
}

func (c *canvas) circle(class string, x, y float64, tip string) {
	c.add(`<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"><title>%s</title></circle>`, class, x, y, html.EscapeString(tip))
}

// text is anchored at its start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	c.add(`<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`, class, anchor, x, y, html.EscapeString(s))
}

func (c *canvas) path(class string, points [][2]float64) {
	var d strings.Builder
	for i, p := range points {
		op := "L"
		if i == 0 {
			op = "M"
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", op, p[0], p[1])
	}
	c.add(`<path class="%s" d="%s"/>`, class, d.String())
}

// String is the whole picture.
func (c *canvas) String() string {
	return fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">%s</svg>`,
		c.width, c.height, html.EscapeString(c.label), c.b.String())
}

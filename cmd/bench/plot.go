package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	plotLabels = 130 // left of the panels
	plotPanel  = 210 // width of one
	plotRow    = 22  // height
)

// Plot draws the ratios as an SVG: a panel for each set-up, a row for each scenario.
func (r *Results) Plot(w io.Writer) error {
	const base = passThrough
	groups := keep(r.groups(base), func(g group) bool {
		return g.ratio != nil && g.setup != base && g.ratio.Center > 0
	})
	if len(groups) == 0 {
		return fmt.Errorf("there is nothing to draw: no set-up was measured beside %s", base)
	}
	rows := distinct(groups, func(g group) place { return g.place })
	setups := distinct(groups, func(g group) string { return g.setup })
	least, most := 1/1.3, 1.3
	for i := range groups {
		lo, hi := ends(&groups[i])
		least, most = min(least, lo), max(most, hi)
	}
	scale := float64(plotPanel-70) / math.Log(most/least) // room for a label
	width, height := plotLabels+plotPanel*len(setups), plotRow*(len(rows)+5)

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text := func(x, y float64, colour, format string, args ...any) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x, y, colour, html.EscapeString(fmt.Sprintf(format, args...)))
	}
	line := func(x1, y1, x2, y2 float64, style string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
	}
	const ink, ideal = "#1f4e79", "#b03a2e"
	middle := func(row int) float64 { return plotRow * (float64(row) + 2.5) }
	bottom := middle(len(rows))
	for i, p := range rows {
		name := p.scenario
		if p.where == machines {
			name += " (machine)"
		}
		text(4, middle(i)+4, "black", "%s", name)
	}
	for i, setup := range setups {
		left := float64(plotLabels + i*plotPanel)
		at := func(v float64) float64 { return left + 8 + scale*math.Log(v/least) }
		text(left+8, plotRow, "black", "%s", setup)
		line(at(1), 1.5*plotRow, at(1), bottom, `stroke="`+ideal+`" stroke-dasharray="4 3"`)
		text(at(1)-3, bottom+plotRow/2, ideal, "1")
		for k := range groups {
			g := &groups[k]
			if g.setup != setup {
				continue
			}
			y := middle(slices.Index(rows, g.place))
			lo, hi := ends(g)
			line(at(lo), y, at(hi), y, `stroke="`+ink+`" stroke-width="2"`)
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", at(g.ratio.Center), y, ink)
			text(at(hi)+6, y+4, ink, "%.2f", g.ratio.Center)
		}
	}
	text(4, bottom+1.5*plotRow, "black", "time by that of %s, logarithmic: left of the line is faster; bars are 95 %% intervals of the median", base)
	text(4, bottom+2.3*plotRow, "gray", "%s", strings.Join(r.Notes, "; "))
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// ends are the ends of a ratio's interval, or the median twice.
func ends(g *group) (lo, hi float64) {
	if !hasInterval(g.ratio) || g.ratio.Lo <= 0 {
		return g.ratio.Center, g.ratio.Center
	}
	return g.ratio.Lo, g.ratio.Hi
}

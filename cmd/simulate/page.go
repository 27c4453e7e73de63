package simulate

import (
	"fmt"
	"io"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/umbra-gpu/umbra/cmd/plot"
)

// WritePage writes the report as one HTML page that loads nothing.
func (r *Report) WritePage(w io.Writer) error {
	page := plot.NewPage("umbra sched simulate: " + r.Name)
	if r.About != "" {
		page.Text(r.About)
	}
	page.Text(fmt.Sprintf("Seed %d, %s of card time with each policy.", r.Seed, r.Card))
	page.Table(r.Text())
	draw := r.shares
	if r.Axis != "" {
		draw = r.sweep
	}
	if err := draw(page); err != nil {
		return err
	}
	_, err := page.WriteTo(w)
	return err
}

// inRow is how many policies stand side by side.
const inRow = 4

// shares draws each process's share with each policy, and its course.
func (r *Report) shares(page *plot.Page) error {
	for runs := range slices.Chunk(r.Runs, inRow) {
		var shares, courses []*plot.Panel
		rows := 0
		for i := range runs {
			x := &runs[i]
			clients := x.Clients[:min(len(x.Clients), most)]
			rows = max(rows, len(clients))
			shares = append(shares, x.shares(clients))
			courses = append(courses, x.course(clients, r.Card.Seconds()))
		}
		svg, err := plot.SVG(float64(len(runs))*2.8, float64(rows)*0.28+1, shares...)
		if err != nil {
			return err
		}
		page.Figure("Shares of the card's busy time", "Dots are shares, red dots the ideal.", svg)
		if svg, err = plot.SVG(float64(len(runs))*2.8, 2.6, courses...); err != nil {
			return err
		}
		page.Figure("Shares over time", "Each line is a process; dashed lines are ideals.", svg)
	}
	return nil
}

func (x *Run) shares(clients []Client) *plot.Panel {
	p := plot.New(x.Name)
	var names []string
	for i := range clients {
		names = append(names, clients[i].Name)
	}
	row := p.Rows(names, true)
	p.X.Min, p.X.Max, p.X.Label.Text = 0, 1.2, "share"
	p.TicksX([]float64{0, 0.5, 1})
	for i := range clients {
		c := &clients[i]
		if c.Ideal != nil {
			p.Dot(plot.Ideal, *c.Ideal, row(i))
		}
		p.Dot(plot.Ink, c.Share, row(i))
		p.Text(plot.Ink, c.Share, row(i), percent(c.Share))
	}
	return p
}

func (x *Run) course(clients []Client, seconds float64) *plot.Panel {
	p := plot.New(x.Name)
	p.X.Label.Text, p.Y.Label.Text = "card time in seconds", "share in each window"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, seconds*1.3, 0, 1.05 // room for the names
	for i := range clients {
		c := &clients[i]
		var at plotter.XYs
		for w, share := range c.Shares {
			at = append(at, plotter.XY{X: seconds * float64(w+1) / float64(len(c.Shares)), Y: share})
		}
		if len(at) == 0 {
			continue
		}
		p.Line(plot.Ink, at...)
		p.Text(plot.Ink, seconds, at[len(at)-1].Y, c.Name)
		if c.Ideal != nil {
			p.Dashed(plot.Ideal, plotter.XY{X: 0, Y: *c.Ideal}, plotter.XY{X: seconds, Y: *c.Ideal})
		}
	}
	return p
}

// sweep draws the program's runtime along the axis, a panel for each policy.
func (r *Report) sweep(page *plot.Page) error {
	longest := 0.0
	for i := range r.Runs {
		for _, d := range r.Runs[i].Runtimes {
			longest = max(longest, d.Seconds())
		}
	}
	for runs := range slices.Chunk(r.Runs, inRow) {
		var all []*plot.Panel
		for i := range runs {
			p := plot.New(runs[i].Name)
			p.X.Label.Text, p.Y.Label.Text = r.Axis, "runtime in seconds"
			p.Y.Min, p.Y.Max = 0, longest*1.05
			var at plotter.XYs
			for k, d := range runs[i].Runtimes {
				at = append(at, plotter.XY{X: r.At[k], Y: d.Seconds()})
			}
			p.Line(plot.Ink, at...)
			all = append(all, p)
		}
		svg, err := plot.SVG(float64(len(all))*2.8, 2.6, all...)
		if err != nil {
			return err
		}
		page.Figure("Runtime of the program", "With an ideal policy the line is flat.", svg)
	}
	return nil
}

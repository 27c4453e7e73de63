// Package page draws a report as one HTML page that stands alone, of the parts
// that package plot has.
//
// The package is pure: no state, locks or goroutines.
package page

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/plot"
)

//go:embed page.html
var source string

var layout = plot.New(source)

// The parts of the page.
type (
	table   = plot.Table
	cell    = plot.Cell
	picture = plot.Picture
	key     = plot.Key
	section = plot.Section
)

type content struct {
	*report.Report
	Facts    [][2]string
	Setups   []setupRow
	Sections []section
	Compared *table
	// How to read it, and what comes of it in a line.
	AboutCompared, Summary string
	Refused                []report.Refusal
	Missing                []string
}

type setupRow struct {
	report.Setup
	Class   string
	Options string
}

// Write writes the page. The comparison may be nil.
func Write(w io.Writer, r *report.Report, c *report.Comparison) error {
	p := &content{Report: r, Facts: facts(r)}
	d := &drawer{r: r, class: map[string]string{}}
	for i, s := range r.Setups {
		class := fmt.Sprintf("s%d", i%plot.Colours)
		d.class[s.Name] = class
		d.legend = append(d.legend, key{Class: class, Name: s.Name})
		var o []string
		for _, k := range slices.Sorted(maps.Keys(s.Options)) {
			o = append(o, k+" = "+s.Options[k])
		}
		p.Setups = append(p.Setups, setupRow{s, class, strings.Join(o, ", ")})
	}
	for _, where := range []string{report.InProcess, report.InMachine} {
		p.Sections = append(p.Sections, d.ablation(where)...)
	}
	for i := range r.Scenarios {
		for _, where := range []string{report.InProcess, report.InMachine} {
			p.Sections = append(p.Sections, d.scenario(&r.Scenarios[i], where)...)
		}
	}
	p.Sections = append(p.Sections, d.bells()...)
	p.Sections = append(p.Sections, d.traps()...)
	p.Sections = append(p.Sections, d.model()...)
	if c != nil {
		p.Compared, p.Refused, p.Missing = d.compared(c), c.Refused, c.Missing
		p.AboutCompared, p.Summary = strings.Join(report.AboutComparison, " "), c.Summary()+"."
	}
	return layout.Execute(w, p)
}

func facts(r *report.Report) [][2]string {
	m := &r.Machine
	out := [][2]string{
		{"Program", "umbra " + r.Umbra},
		{"Measured", r.Began.Format("2 January 2006, 15:04 MST") + ", for " + report.ShowTime(r.Seconds*1e9)},
		{"Machine", fmt.Sprintf("%s, %d processors, %d MiB, load %.1f at the start", m.Processor, m.Processors, m.MemoryMiB, m.Load)},
		{"Kernel", fmt.Sprintf("Linux %s; %s", m.Kernel, m.Go)},
	}
	if e := r.Emulator; e != nil {
		out = append(out, [2]string{"QEMU", e.QEMU + " with " + e.Accelerator})
	}
	turns := r.Repetitions() + ", the set-ups by turns"
	if r.Run.Quick {
		turns += "; quick: small parameters"
	}
	return append(out, [2]string{"Repetitions", turns})
}

// drawer makes the sections of one report.
type drawer struct {
	r      *report.Report
	class  map[string]string // colour by set-up
	legend []key
}

func (d *drawer) setup(name string) cell { return cell{Text: name, Class: d.class[name], Word: true} }

func word(s string) cell   { return cell{Text: s, Word: true} }
func number(s string) cell { return cell{Text: s} }

const none = "–"

// where writes the place of a measurement behind a title.
func where(title, place string) string {
	if place == report.InMachine {
		return title + ", in virtual machines"
	}
	return title
}

// counts are the columns of counts that any of the sets has, and its cells.
func counts[T any](sets []map[string]T, value func(T) float64) (titles []string, cells func(map[string]T) []cell) {
	var used []report.Count
	for _, c := range report.Counts {
		if c.Column && slices.ContainsFunc(sets, func(m map[string]T) bool { _, ok := m[c.Name]; return ok }) {
			used = append(used, c)
			titles = append(titles, c.Title)
		}
	}
	return titles, func(m map[string]T) (out []cell) {
		for _, c := range used {
			v, ok := m[c.Name]
			switch {
			case !ok:
				out = append(out, number(none))
			case c.Time:
				out = append(out, number(report.ShowTime(value(v))))
			default:
				out = append(out, number(report.ShowCount(value(v))))
			}
		}
		return out
	}
}

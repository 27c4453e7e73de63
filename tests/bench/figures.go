package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// result is all figures of a run, and what they were taken on.
type result struct {
	Machine  report.Machine `json:"machine"`
	QEMU     string         `json:"qemu,omitempty"`
	Accel    string         `json:"accel,omitempty"`
	Repeat   int            `json:"repeat"`
	Sections []section      `json:"sections"`
	Errors   []string       `json:"errors,omitempty"`
}

type section struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Notes   []string `json:"notes,omitempty"`
	Figures []figure `json:"figures"`
	Seconds float64  `json:"seconds"`
}

// figure is the median of some measurements, with the least and the greatest.
type figure struct {
	Name    string    `json:"name"`
	Unit    unit      `json:"unit"`
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Least   float64   `json:"least"`
	Most    float64   `json:"most"`
	Target  string    `json:"target,omitempty"`
	Reached *bool     `json:"reached,omitempty"`
}

// unit of a figure.
type unit string

const (
	nanoseconds unit = "ns"
	ratio       unit = "ratio"
	perMessage  unit = "/message"
	bandwidth   unit = "GB/s"
)

func newFigure(name string, u unit, values []float64) figure {
	f := figure{Name: name, Unit: u, Values: values}
	if len(values) > 0 {
		f.Median, f.Least, f.Most = median(values), slices.Min(values), slices.Max(values)
	}
	return f
}

func median(values []float64) float64 { return stats.Median(values) }

// target is what a median should be.
type target struct {
	text  string
	holds func(median float64) bool
}

func atMost(v float64, text string) target {
	return target{text, func(m float64) bool { return m <= v }}
}

func below(v float64, text string) target {
	return target{text, func(m float64) bool { return m < v }}
}

func atLeast(v float64, text string) target {
	return target{text, func(m float64) bool { return m >= v }}
}

// text is the table.
func (r *result) text() string {
	var b strings.Builder
	m := &r.Machine
	fmt.Fprintf(&b, "%s, %d processors, %d MiB; Linux %s, %s; load %.1f at the start\n",
		m.Processor, m.Processors, m.MemoryMiB, m.Kernel, m.Go, m.Load)
	if r.QEMU != "" {
		fmt.Fprintf(&b, "QEMU %s with %s\n", r.QEMU, r.Accel)
	}
	var rows [][]string
	for i := range r.Sections {
		for j := range r.Sections[i].Figures {
			rows = append(rows, r.Sections[i].Figures[j].row())
		}
	}
	head := []string{"", "median", "least", "most", "n", "target"}
	widths := make([]int, len(head))
	for _, row := range append(rows, head) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		l := "  " + row[0] + pad(row[0], widths[0])
		for i, cell := range row[1:5] {
			l += "  " + pad(cell, widths[i+1]) + cell
		}
		b.WriteString(strings.TrimRight(l+"  "+row[5], " ") + "\n")
	}
	b.WriteString("\n")
	line(head)
	n, reached, targets := 0, 0, 0
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "%s\n", s.Title)
		for range s.Figures {
			line(rows[n])
			n++
		}
		for _, f := range s.Figures {
			if f.Reached != nil {
				targets++
				if *f.Reached {
					reached++
				}
			}
		}
		for _, note := range s.Notes {
			fmt.Fprintf(&b, "  (%s)\n", note)
		}
	}
	fmt.Fprintf(&b, "\n%d of %d targets reached\n", reached, targets)
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "not measured: %s\n", e)
	}
	return b.String()
}

func pad(s string, n int) string { return strings.Repeat(" ", n-utf8.RuneCountInString(s)) }

func (f *figure) row() []string {
	row := []string{f.Name, "-", "-", "-", fmt.Sprint(len(f.Values)), ""}
	if len(f.Values) > 0 {
		row[1], row[2], row[3] = f.Unit.show(f.Median), f.Unit.show(f.Least), f.Unit.show(f.Most)
	}
	if f.Reached != nil {
		row[5] = f.Target + " MISSED"
		if *f.Reached {
			row[5] = f.Target + " reached"
		}
	}
	return row
}

func (u unit) show(v float64) string {
	switch u {
	case nanoseconds:
		return report.ShowTime(v)
	case ratio, perMessage:
		return fmt.Sprintf("%.2f", v)
	case bandwidth:
		return fmt.Sprintf("%.1f GB/s", v)
	}
	return fmt.Sprintf("%g %s", v, u)
}

package report

import (
	"strings"
	"unicode/utf8"
)

// grid is a table for a terminal: the first columns to the left, the others to
// the right.
type grid struct {
	indent string
	left   int // columns of words
	head   []string
	rows   [][]string
}

func (g *grid) row(cells ...string) { g.rows = append(g.rows, cells) }

// write drops columns in which no row has anything, or nothing but zeros.
func (g *grid) write(b *strings.Builder) {
	widths := make([]int, len(g.head))
	used := make([]bool, len(g.head))
	for _, row := range g.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c), utf8.RuneCountInString(g.head[i]))
			used[i] = used[i] || c != "" && c != none && c != "0" && c != "0 ns" || i == 0
		}
	}
	line := func(row []string) {
		l := g.indent
		for i, c := range row {
			pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(c), 0))
			switch {
			case !used[i]:
			case i == 0:
				l += c + pad
			case i < g.left:
				l += "  " + c + pad
			default:
				l += "  " + pad + c
			}
		}
		b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	line(g.head)
	for _, row := range g.rows {
		line(row)
	}
}

// none stands for what was not measured or not counted.
const none = "-"

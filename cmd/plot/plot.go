// Package plot draws figures as parts of an HTML page that stands alone: styles
// and pictures are in it, it loads nothing and runs no script. Pictures are SVG,
// in colours that follow the reader's light or dark preference.
//
// The package is pure: no state, locks or goroutines.
package plot

import (
	_ "embed"
	"html/template"
)

//go:embed parts.html
var parts string

// New makes a page's template, with the templates "style", "sections" (of a
// []Section) and "table" (of a Table) to use in it.
func New(source string) *template.Template {
	return template.Must(template.Must(template.New("page").Parse(parts)).Parse(source))
}

// Colours is how many classes there are for kinds (s0, s1, ...) and for parts
// (p0, p1, ...). The bench has thirteen set-ups.
const Colours = 16

// Table is one for the page: words on the left, numbers on the right.
type Table struct {
	Title  string // "" for none
	Head   []string
	Rows   [][]Cell
	Words  int    // columns of words
	Legend []Term // what columns are, below it
}

// Term is a column's name and what it is.
type Term struct{ Name, About string }

// Cell of a table.
type Cell struct {
	Text  string
	Class string // colour
	Word  bool
}

// Picture is a plot with its title and what its colours mean.
type Picture struct {
	Title  string
	Legend []Key
	SVG    template.HTML
	Half   bool // two of them stand side by side
}

// Key says what a colour means.
type Key struct{ Class, Name string }

// Section is one part of the page.
type Section struct {
	ID, Title, About string
	Open             bool // its tables are shown; others unfold
	Pictures         []Picture
	Tables           []Table
}

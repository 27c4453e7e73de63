package main

import "strings"

// fold sets tables that are wider than n characters anew: the columns that fit, and below
// them, behind the first one again, those that do not. A table is lines that are indented,
// with its head first and two spaces or more between columns. Other lines stay.
func fold(lines []string, n int) (out []string) {
	for len(lines) > 0 {
		rows := 0
		for rows < len(lines) && strings.HasPrefix(lines[rows], "  ") {
			rows++
		}
		if rows > 0 {
			out = append(out, foldTable(lines[:rows], n)...)
			lines = lines[rows:]
			continue
		}
		out = append(out, strings.TrimRight(lines[0], " "))
		lines = lines[1:]
	}
	return out
}

func foldTable(lines []string, n int) (out []string) {
	rows, widest := make([][]rune, len(lines)), 0
	for i, l := range lines {
		rows[i] = []rune(strings.TrimRight(l, " "))
		widest = max(widest, len(rows[i]))
	}
	columns := starts(rows[0])
	cut := 0 // where the first column begins that does not fit
	for i, at := range columns {
		end := widest
		if i+1 < len(columns) {
			end = columns[i+1] - gap
		}
		if i > 1 && end > n && cut == 0 {
			cut = at
		}
	}
	part := func(row []rune, from, to int) string {
		from, to = min(from, len(row)), min(to, len(row))
		return string(row[from:to])
	}
	if cut == 0 {
		cut = widest
	}
	for _, row := range rows {
		out = append(out, strings.TrimRight(part(row, 0, cut), " "))
	}
	if cut == widest {
		return out
	}
	var rest []string
	for _, row := range rows {
		name := part(row, 0, columns[1])
		rest = append(rest, name+strings.Repeat(" ", columns[1]-len([]rune(name)))+part(row, cut, widest))
	}
	return append(out, foldTable(rest, n)...)
}

// gap is how many spaces there are between columns at least.
const gap = 2

// starts are the places where the columns of a head begin.
func starts(head []rune) (out []int) {
	for i := range head {
		if head[i] != ' ' && (i < gap || string(head[i-gap:i]) == strings.Repeat(" ", gap)) {
			out = append(out, i)
		}
	}
	return out
}

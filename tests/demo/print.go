package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// width is the longest line.
const width = 100

// Colours of a terminal.
const (
	bold  = "1"
	red   = "1;31"
	green = "32"
)

// printer writes for a person. On a terminal it also shows which checks are under way.
type printer struct {
	w    *os.File
	live bool

	mu     sync.Mutex // guards what follows, and keeps lines whole
	status string     // on the last line
}

func newPrinter(w *os.File) *printer {
	_, err := unix.IoctlGetTermios(int(w.Fd()), unix.TCGETS)
	return &printer{w: w, live: err == nil && os.Getenv("TERM") != "dumb"}
}

func (p *printer) paint(code, s string) string {
	if !p.live || os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Write passes on the progress of fetching and building.
func (p *printer) Write(b []byte) (int, error) {
	p.line("  %s", strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, format+"\n"+p.status, args...)
}

// waiting shows what is under way until the next call.
func (p *printer) waiting(names []string) {
	if !p.live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = ""
	if len(names) > 0 {
		p.status = clip("  ...     "+strings.Join(names, ", "), width)
	}
	fmt.Fprint(p.w, "\r\x1b[K"+p.status)
}

// check is one condition that must hold.
type check struct {
	name     string
	detail   string
	problems []string
	took     time.Duration
}

func (c *check) fail(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// want notes a problem unless ok.
func (c *check) want(ok bool, format string, args ...any) {
	if !ok {
		c.fail(format, args...)
	}
}

func (p *printer) check(c *check) {
	verdict, detail := p.paint(green, "ok    "), c.detail
	if len(c.problems) > 0 {
		verdict, detail = p.paint(red, "FAILED"), ""
	}
	p.line("%s", strings.TrimRight(fmt.Sprintf("  %s  %-14s %6.1f s  %s", verdict, c.name, c.took.Seconds(), clip(detail, width-36)), " "))
	for _, problem := range c.problems[:min(3, len(c.problems))] {
		p.line("          - %s", strings.ReplaceAll(problem, "\n", "\n            "))
	}
}

// table writes aligned columns: the first two flush left, the others flush right.
func (p *printer) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if i < 2 {
				fmt.Fprintf(&b, "  %-*s", widths[i], cell)
			} else {
				fmt.Fprintf(&b, "  %*s", widths[i], cell)
			}
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n-3] + "..."
	}
	return s
}

// digits writes n with a comma before every third digit from the right.
func digits(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }

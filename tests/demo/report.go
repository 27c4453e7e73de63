package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// width is what every line of the report fits in.
const width = 100

// printer writes for a person: checks as they are made, and the report.
type printer struct {
	w      io.Writer
	colour bool
	live   bool // a line that says what is waited for may be overwritten

	mu    sync.Mutex // one line at a time; guards shown
	shown string     // of the line to overwrite
}

// Colours of a terminal.
const (
	bold  = "1"
	red   = "1;31"
	green = "32"
	faint = "2"
)

func (p *printer) paint(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// waiting shows what is being done, on a terminal, until the next line.
func (p *printer) waiting(name string) {
	if !p.live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	if name != "" {
		p.shown = "   ...     " + name
		fmt.Fprint(p.w, p.paint(faint, p.shown))
	}
}

// say tells what is being done that takes a while.
func (p *printer) say(format string, args ...any) {
	for _, l := range wrap(fmt.Sprintf(format, args...), width-2) {
		p.line("%s", p.paint(faint, "  "+l))
	}
}

// erase needs mu.
func (p *printer) erase() {
	if p.shown != "" {
		fmt.Fprintf(p.w, "\r%*s\r", utf8.RuneCountInString(p.shown), "")
		p.shown = ""
	}
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// progressWriter passes on what fetching and building say.
type progressWriter struct{ p *printer }

func (w progressWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.erase()
	return w.p.w.Write(b)
}

func (p *printer) progress() io.Writer { return progressWriter{p} }

// head says what runs on what.
func (p *printer) head(r *result) {
	p.line("")
	p.line("%s", p.paint(bold, "A GF100 in software, and Debian's own nouveau on it"))
	p.line("  guest  Linux %s, as Debian ships it", r.Kernel)
	how := "TCG, QEMU's own code translation"
	if r.Accel != "tcg" {
		how = strings.ToUpper(r.Accel)
	}
	p.line("  host   QEMU %s with %s", r.QEMU, how)
	card := fmt.Sprintf("10de:06d8 with %s of VRAM, served over vfio-user; there is no GPU in this", size(r.VRAM))
	if r.Control {
		card = fmt.Sprintf("10de:06d8 with %s of VRAM, its engines DISABLED: what moves data must fail", size(r.VRAM))
	}
	p.line("  card   %s", card)
	p.line("")
}

// check writes one check.
func (p *printer) check(c *check) {
	verdict := p.paint(green, "ok    ")
	switch {
	case c.Stopped:
		p.line("  %s %-14s %8s", p.paint(bold, "stopped"), c.Name, short(c.Took))
		return
	case c.NotRun:
		p.line("  %s  %s", p.paint(red, "FAILED"), fmt.Sprintf("%-14s          not tried", c.Name))
		return
	case !c.OK:
		verdict = p.paint(red, "FAILED")
	}
	detail := c.Detail
	if !c.OK {
		detail = ""
	}
	p.line("%s", strings.TrimRight(fmt.Sprintf("  %s  %-14s %8s  %s", verdict, c.Name, short(c.Took), clip(detail, width-35)), " "))
	for i, problem := range c.Problems {
		if i == maxProblems {
			p.line("          ... and %d more", len(c.Problems)-i)
			break
		}
		for j, l := range wrap(problem, width-12) {
			p.line("          %s %s", [2]string{"-", " "}[min(j, 1)], l)
		}
	}
}

// maxProblems of one check are shown; the JSON report has all.
const maxProblems = 3

// report writes what follows the checks.
func (p *printer) report(r *result) error {
	p.notTried(&r.outcome)
	if r.Kernel != "" {
		p.nouveau(r)
		p.copies(r)
		p.counts(r)
		p.traps(r)
		p.phases(r)
	}
	p.verdict(&r.outcome, r.summary())
	return nil
}

// notTried lists the checks that were not made.
func (p *printer) notTried(o *outcome) {
	p.waiting("")
	for i := range o.Checks {
		if o.Checks[i].NotRun && !o.Stopped {
			p.check(&o.Checks[i])
		}
	}
}

func (p *printer) title(s string) {
	p.line("")
	p.line("%s", p.paint(bold, s))
}

// nouveau quotes the driver.
func (p *printer) nouveau(r *result) {
	if len(r.Nouveau) == 0 {
		return
	}
	p.title("What nouveau said it found")
	for _, l := range r.Nouveau {
		p.line("  %s", clip(l, width-2))
	}
}

func (p *printer) copies(r *result) {
	if len(r.Copies) == 0 {
		return
	}
	p.title("Bytes copied by the GPU")
	t := table{left: 1, head: []string{"", "guest: verified"}}
	for i, m := range movers {
		name := m.name
		if i == 0 {
			name = "card: " + name
		}
		t.head = append(t.head, name)
	}
	t.head = append(t.head, "copies")
	sum := copies{Name: "together", Moved: map[string]uint64{}}
	row := func(c *copies) {
		cells := []string{c.Name, digits(c.Verified)}
		for _, m := range movers {
			cells = append(cells, digits(c.Moved[fmt.Sprintf("%04x", m.class)]))
		}
		t.rows = append(t.rows, append(cells, digits(c.Launches)))
	}
	for i := range r.Copies {
		c := &r.Copies[i]
		row(c)
		sum.Verified += c.Verified
		sum.Launches += c.Launches
		for class, n := range c.Moved {
			sum.Moved[class] += n
		}
	}
	row(&sum)
	p.table(&t)
	p.line("  The card's counts include what the guest stages through VRAM to fill and to read its buffers.")
}

func (p *printer) counts(r *result) {
	f, i := &r.Fences, &r.IRQ
	p.title("Fences and interrupts")
	p.line("  guest  %s waits for a fence, median %s, 99%% under %s; %s copies chained by semaphores",
		digits(uint64(f.Waits)), short(f.Median), short(f.P99), digits(uint64(f.Chained)))
	p.line("  card   %s doorbells, %s semaphores released, %s acquires that had to wait",
		digits(f.Doorbells), digits(f.Released), digits(f.Waited))
	p.line("  %-5s  %s raised by the card, %s signalled to QEMU, %s taken by the guest (before its poweroff)",
		i.Mode, digits(i.Raised), digits(i.Signalled), digits(i.Taken))
}

// maxBlocks of registers are shown by name.
const maxBlocks = 10

func (p *printer) traps(r *result) {
	if len(r.Regions) == 0 {
		return
	}
	p.title("Traps: accesses of the guest that reached the card over the socket")
	t := table{left: 1, head: []string{"region", "reads", "writes"}}
	for _, g := range r.Regions {
		t.rows = append(t.rows, []string{g.Name, digits(g.Reads), digits(g.Writes)})
	}
	p.table(&t)
	p.line("")
	t = table{left: 1, head: []string{"registers of", "reads", "writes", "time in the card", "each"}}
	rest := traps{}
	for i, b := range r.Blocks {
		if i >= maxBlocks {
			rest.Reads += b.Reads
			rest.Writes += b.Writes
			rest.Time += b.Time
			continue
		}
		t.rows = append(t.rows, trapRow(b))
	}
	if n := len(r.Blocks) - maxBlocks; n > 0 {
		rest.Name = fmt.Sprintf("%d more blocks", n)
		t.rows = append(t.rows, trapRow(rest))
	}
	p.table(&t)
}

func trapRow(b traps) []string {
	each := b.Time / time.Duration(max(b.Reads+b.Writes, 1))
	return []string{b.Name, digits(b.Reads), digits(b.Writes), short(b.Time), short(each)}
}

func (p *printer) phases(r *result) {
	p.title("Time")
	t := table{left: 1, head: []string{"", "wall", "guest's clock"}}
	for _, f := range r.Phases {
		guest := ""
		if f.Guest > 0 {
			guest = short(f.Guest)
		}
		t.rows = append(t.rows, []string{f.Name, short(f.Wall), guest})
	}
	p.table(&t)
}

// verdict is the last word.
func (p *printer) verdict(r *outcome, summary string) {
	held := 0
	var bad []string
	for _, c := range r.Checks {
		if c.OK {
			held++
		} else {
			bad = append(bad, c.Name)
		}
	}
	p.line("")
	for _, l := range r.Log {
		p.line("  | %s", clip(l, width-4))
	}
	if r.Error != "" {
		for _, l := range strings.Split(strings.TrimSpace(r.Error), "\n") {
			p.line("%s", l)
		}
	}
	if r.Stopped {
		p.line("%s", p.paint(bold, fmt.Sprintf("stopped, as asked, after %s; checks that had held: %d", short(r.took()), held)))
		return
	}
	if r.OK {
		p.line("%s", p.paint(green, fmt.Sprintf("ok: all %d checks held%s, in %s", held, summary, short(r.took()))))
		return
	}
	p.line("%s", p.paint(red, fmt.Sprintf("FAILED: %d of %d checks held", held, len(r.Checks))))
	if len(bad) > 0 {
		for _, l := range wrap("not: "+strings.Join(bad, ", "), width-2) {
			p.line("  %s", l)
		}
	}
}

// summary is the run in half a sentence.
func (r *result) summary() string {
	var moved, accesses uint64
	for _, c := range r.Copies {
		for _, n := range c.Moved {
			moved += n
		}
	}
	for _, g := range r.Regions {
		accesses += g.Reads + g.Writes
	}
	return fmt.Sprintf("; %s bytes moved, %s traps served", digits(moved), digits(accesses))
}

// took is how long all of it did: the last phase.
func (o *outcome) took() time.Duration {
	if n := len(o.Phases); n > 0 {
		return o.Phases[n-1].Wall
	}
	return 0
}

// table is aligned columns: the first left ones flush left, the others flush right.
type table struct {
	left int
	head []string
	rows [][]string
}

func (p *printer) table(t *table) {
	lines := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	for _, l := range lines {
		for i, cell := range l {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, l := range lines {
		var b strings.Builder
		for i, cell := range l {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < t.left {
				b.WriteString("  " + cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		text := strings.TrimRight(b.String(), " ")
		if n == 0 {
			text = p.paint(faint, text)
		}
		p.line("%s", text)
	}
}

// digits writes n with a comma before every third digit from the right.
func digits(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short writes d with one decimal in the unit that keeps it short.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f us", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func size(n uint64) string {
	if n >= 1<<30 && n%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// clip shortens a line to n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}

// wrap breaks text into lines of at most n characters, between words where it can.
func wrap(s string, n int) []string {
	var lines []string
	for _, text := range strings.Split(strings.TrimSpace(s), "\n") {
		line := ""
		for _, w := range strings.Fields(text) {
			w = clip(w, n)
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > n {
				lines, line = append(lines, line), ""
			}
			if line != "" {
				line += " "
			}
			line += w
		}
		lines = append(lines, line)
	}
	return lines
}

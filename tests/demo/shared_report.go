package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// sharedHead says what is about to be shown, and by what.
func (p *printer) sharedHead(r *sharedResult) {
	p.line("")
	p.line("%s", p.paint(bold, fmt.Sprintf("One software card, %d virtual GPUs, and a guest with its own nouveau on each", len(r.Guests))))
	p.line("")
	p.line("  $ cat %s", configFile)
	for l := range strings.Lines(r.Config) {
		p.line("  %s", strings.TrimRight(l, "\n"))
	}
	p.line("  $ umbra serve --config %s", configFile)
	if r.Control {
		p.line("")
		p.line("  %s", p.paint(red, "The card's engines are DISABLED: what moves data must fail"))
	}
	p.line("")
	p.say("booting %d guests in QEMU at the same time ...", len(r.Guests))
}

// sharedReport writes what follows the checks.
func (p *printer) sharedReport(r *sharedResult) error {
	p.notTried(&r.outcome)
	if r.Status != "" {
		p.title("$ umbra status --control " + controlSocket)
		for _, l := range fold(strings.Split(strings.TrimRight(r.Status, "\n"), "\n"), width-2) {
			p.line("  %s", clip(l, width-2))
		}
	}
	if r.Registers != "" {
		p.regs(r.Registers)
	}
	if r.Moved != nil {
		p.counters(r)
		p.moved(r)
		p.tenants(r)
	}
	p.verdict(&r.outcome, sharedSummary(r))
	return nil
}

// regRows of umbra regs are shown.
const regRows = 10

var columns = regexp.MustCompile(` {2,}`)

// regs shows the beginning of what umbra regs printed, set anew: its columns are as
// wide as the longest name in all of its lines.
func (p *printer) regs(text string) {
	p.title("$ umbra regs --touched --gpu a --control " + controlSocket)
	t := table{left: 2}
	for l := range strings.Lines(text) {
		switch cells := columns.Split(strings.TrimSpace(l), -1); {
		case len(cells) == 1:
		case t.head == nil:
			t.head = cells
		case len(cells) == len(t.head):
			t.rows = append(t.rows, cells)
		}
	}
	more := max(0, len(t.rows)-regRows)
	t.rows = t.rows[:len(t.rows)-more]
	for i, w := 0, len(t.head)-1; i < len(t.rows); i++ { // what stands last is left out: it is text
		t.rows[i] = t.rows[i][:w]
	}
	t.head = t.head[:max(0, len(t.head)-1)]
	p.table(&t)
	p.line("  and %d more", more)
}

// counters shows what the server counted of each guest: what it asked for, and
// the rules that it broke.
func (p *printer) counters(r *sharedResult) {
	p.title("What each guest asked for, and the rules that it broke")
	t := table{left: 1, head: []string{""}}
	for _, g := range r.Guests {
		t.head = append(t.head, "guest "+g.Name)
	}
	row := func(name string, of func(g *guestResult) uint64) bool {
		cells, sum := []string{name}, uint64(0)
		for _, g := range r.Guests {
			cells = append(cells, digits(of(g)))
			sum += of(g)
		}
		if sum > 0 {
			t.rows = append(t.rows, cells)
		}
		return sum > 0
	}
	for _, name := range names(r.Guests, func(g *guestResult) map[string]uint64 { return g.Done }) {
		row(name, func(g *guestResult) uint64 { return g.Done[name] })
	}
	never := 0
	for _, name := range names(r.Guests, func(g *guestResult) map[string]uint64 { return g.Broken }) {
		if !row("rule broken: "+name, func(g *guestResult) uint64 { return g.Broken[name] }) {
			never++
		}
	}
	p.table(&t)
	p.line("  Nobody broke any of the other %d rules.", never)
	if r.LogLine != "" {
		_, text, _ := strings.Cut(r.LogLine, " ") // without the time
		p.line("  The server's log: %s", clip(text, width-20))
	}
}

// names of all counts, sorted.
func names(guests []*guestResult, of func(*guestResult) map[string]uint64) []string {
	var out []string
	for _, g := range guests {
		for name := range of(g) {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (p *printer) moved(r *sharedResult) {
	p.title("Bytes copied by the one card, for all of them")
	t := table{left: 1, head: []string{"", "guests: verified", "card: moved"}}
	for _, m := range movers {
		class := fmt.Sprintf("%04x", m.class)
		t.rows = append(t.rows, []string{m.name, digits(r.Verified[class]), digits(r.Moved[class])})
	}
	p.table(&t)
	p.line("  The card's counts include what guests stage through VRAM to fill and to read their buffers.")
}

func (p *printer) tenants(r *sharedResult) {
	p.title("The guests")
	t := table{left: 2, head: []string{"", "Linux", "boot", "probe", "copies", "verified", "traps", "interrupts"}}
	for _, g := range r.Guests {
		t.rows = append(t.rows, []string{g.Name, g.Kernel, short(g.Boot), short(g.Probe), digits(g.Copies), size(g.Verified), digits(g.Traps), digits(g.IRQs)})
	}
	p.table(&t)
}

// sharedSummary is the run in half a sentence.
func sharedSummary(r *sharedResult) string {
	var copies, verified, traps uint64
	for _, g := range r.Guests {
		copies += g.Copies
		verified += g.Verified
		traps += g.Traps
	}
	return fmt.Sprintf("; %s copies and %s verified, %s traps served", digits(copies), size(verified), digits(traps))
}

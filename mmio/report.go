package mmio

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Order is what a report's rows are sorted by, largest first.
type Order string

const (
	ByCount Order = "count" // reads and writes together
	ByTime  Order = "time"
)

// Report is what a guest did to a Space so far.
type Report struct {
	Order  Order         `json:"order"`
	Reads  uint64        `json:"reads"`   // Reads of declared registers.
	Writes uint64        `json:"writes"`  // Writes of declared registers.
	Time   time.Duration `json:"time_ns"` // Time spent on these accesses, estimated from a sample.
	Blocks []BlockCount  `json:"blocks,omitempty"`
	Rows   []RowCount    `json:"rows,omitempty"`
	Stubs  []RowCount    `json:"stubs,omitempty"` // the rows that are stubs, once more
	Missed Missed        `json:"missed"`
}

// BlockCount sums the rows of a block.
type BlockCount struct {
	Name   string        `json:"name"`
	Rows   int           `json:"rows"`    // Registers of the block that were accessed.
	Reads  uint64        `json:"reads"`   // Reads.
	Writes uint64        `json:"writes"`  // Writes.
	Time   time.Duration `json:"time_ns"` // Time spent on these accesses, estimated from a sample.
}

// Report sums up the counters. It may be called while a guest runs.
func (s *Space) Report(by Order) (Report, error) {
	if by != ByCount && by != ByTime {
		return Report{}, fmt.Errorf("mmio: a report cannot be sorted by %q; use %q or %q", by, ByCount, ByTime)
	}
	r := Report{Order: by, Rows: s.Counts(), Missed: s.Missed()}
	at := make(map[string]int)
	for _, c := range r.Rows {
		i, ok := at[c.Block]
		if !ok {
			i = len(r.Blocks)
			at[c.Block] = i
			r.Blocks = append(r.Blocks, BlockCount{Name: c.Block})
		}
		b := &r.Blocks[i]
		b.Rows++
		b.Reads += c.Reads
		b.Writes += c.Writes
		b.Time += c.Time
		r.Reads += c.Reads
		r.Writes += c.Writes
		r.Time += c.Time
	}
	slices.SortStableFunc(r.Rows, func(a, b RowCount) int {
		return by.compare(a.Reads+a.Writes, b.Reads+b.Writes, a.Time, b.Time)
	})
	slices.SortStableFunc(r.Blocks, func(a, b BlockCount) int {
		return by.compare(a.Reads+a.Writes, b.Reads+b.Writes, a.Time, b.Time)
	})
	for _, c := range r.Rows {
		if c.Stub {
			r.Stubs = append(r.Stubs, c)
		}
	}
	return r, nil
}

// compare puts the larger first.
func (o Order) compare(countA, countB uint64, timeA, timeB time.Duration) int {
	if o == ByTime {
		return cmp.Or(cmp.Compare(timeB, timeA), cmp.Compare(countB, countA))
	}
	return cmp.Or(cmp.Compare(countB, countA), cmp.Compare(timeB, timeA))
}

// WriteText writes the report for a person to read. Lists longer than top end
// with the number of lines left out; top 0 leaves out nothing.
func (r *Report) WriteText(w io.Writer, top int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "registers: %s reads, %s writes, about %s in the model\n",
		digits(r.Reads), digits(r.Writes), shortTime(r.Time))

	blocks := table{title: "by block", head: []string{"block", "reads", "writes", "time", "share", "rows"}, left: 1}
	for _, c := range r.Blocks {
		blocks.add(c.Name, digits(c.Reads), digits(c.Writes), shortTime(c.Time), r.share(c), digits(uint64(c.Rows)))
	}
	blocks.write(&b, top)

	rows := table{title: "by register, most " + r.Order.what() + " first",
		head: []string{"register", "offset", "reads", "writes", "time", "each"}, left: 2}
	stubs := table{title: "stubs: stored, but real hardware would act", head: []string{"register", "offset", "reads", "writes"}, left: 2}
	refused := table{title: "writes to read-only registers", head: []string{"register", "offset", "writes"}, left: 2}
	for _, c := range r.Rows {
		each := c.Time / time.Duration(max(c.Reads+c.Writes, 1))
		rows.add(c.Name, offset(c.Offset), digits(c.Reads), digits(c.Writes), shortTime(c.Time), shortTime(each))
		if c.ReadOnly > 0 {
			refused.add(c.Name, offset(c.Offset), digits(c.ReadOnly))
		}
	}
	for _, c := range r.Stubs {
		stubs.add(c.Name, offset(c.Offset), digits(c.Reads), digits(c.Writes))
	}
	rows.write(&b, top)
	stubs.write(&b, top)
	r.Missed.write(&b, refused, top)

	_, err := io.WriteString(w, b.String())
	return err
}

func (m *Missed) write(b *strings.Builder, refused table, top int) {
	kinds := table{title: "missed", left: 1}
	kinds.addIf(m.HoleReads, "reads of undeclared offsets")
	kinds.addIf(m.HoleWrites, "writes to undeclared offsets")
	kinds.addIf(m.ReadOnly, "writes to read-only registers")
	kinds.addIf(m.Stubs, "accesses to stubs")
	kinds.addIf(m.OddSize, "accesses of odd sizes")
	kinds.addIf(m.Outside, "accesses outside the space")
	if len(kinds.rows) == 0 {
		b.WriteString("\nmissed: nothing\n")
		return
	}
	kinds.write(b, 0)
	refused.write(b, top)
	holes := table{title: "undeclared offsets", head: []string{"near", "offset", "reads", "writes"}, left: 2}
	for _, h := range m.Holes {
		holes.add(h.Near, offset(h.Offset), digits(h.Reads), digits(h.Writes))
	}
	holes.write(b, top)
	if m.Unlisted > 0 {
		fmt.Fprintf(b, "  and %s accesses to offsets beyond the first %d\n", digits(m.Unlisted), maxHoles)
	}
}

func (o Order) what() string {
	if o == ByTime {
		return "time"
	}
	return "accesses"
}

// share returns the block's part of what the report is sorted by.
func (r *Report) share(c BlockCount) string {
	part, whole := float64(c.Reads+c.Writes), float64(r.Reads+r.Writes)
	if r.Order == ByTime {
		part, whole = float64(c.Time), float64(r.Time)
	}
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/whole)
}

// table is lines of aligned columns: the first left ones flush left, the others
// flush right.
type table struct {
	title string
	head  []string
	left  int
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) addIf(n uint64, what string) {
	if n > 0 {
		t.add(what, digits(n))
	}
}

// write appends the table, or nothing if it has no rows.
func (t *table) write(b *strings.Builder, top int) {
	if len(t.rows) == 0 {
		return
	}
	shown := t.rows
	if top > 0 && len(shown) > top {
		shown = shown[:top]
	}
	lines := shown
	if t.head != nil {
		lines = append([][]string{t.head}, shown...)
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	fmt.Fprintf(b, "\n%s\n", t.title)
	for _, line := range lines {
		for i, cell := range line {
			if i < t.left {
				fmt.Fprintf(b, "  %-*s", widths[i], cell)
			} else {
				fmt.Fprintf(b, "  %*s", widths[i], cell)
			}
		}
		b.WriteByte('\n')
	}
	if n := len(t.rows) - len(shown); n > 0 {
		fmt.Fprintf(b, "  ... and %s more\n", digits(uint64(n)))
	}
}

func offset(off uint32) string { return fmt.Sprintf("%06x", off) }

// digits writes n with a comma before every third digit from the right.
func digits(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// shortTime writes d with one decimal in the unit that keeps it short.
func shortTime(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f us", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

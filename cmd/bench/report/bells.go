package report

import (
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// Bell is how many times as long a doorbell takes that is trapped (engaged) as one that
// the guest stores into memory and the server finds.
type Bell struct {
	Where string `json:"where"`
	Case  string `json:"case"`  // of the scenario Bells
	Setup string `json:"setup"` // that traps them
	By    string `json:"by"`    // that does not
	// Turn by turn, of the guest's time: the store of GP_PUT, all that a submission takes the
	// guest, and until the work has been done.
	Store  stats.Summary `json:"store"`
	Launch stats.Summary `json:"launch"`
	Work   stats.Summary `json:"work"`
}

// Accesses is the scenario of single accesses.
const Accesses = "traps"

// Bells is the scenario that rings doorbells, and figures of it that are compared.
const (
	Bells      = "bells"
	BellStore  = "store"
	BellLaunch = "launch"
	BellWork   = "work"
)

// published are ratios of a launch that is trapped to one that is not, each launch
// followed by a wait for it, as measured with a GPU scheduler that traps to take samples and
// otherwise does not.
const published = "published, of launches: 2.6 on the host, 11 to 63 in a virtual machine"

// FindBells compares what was measured.
func (r *Report) FindBells() (out []Bell) {
	for i := range r.Results {
		x := &r.Results[i]
		y := r.Find(x.Where, x.Scenario, x.Case, AllPoll)
		if x.Scenario != Bells || x.Setup == AllPoll || y == nil || r.whole(x.Setup) {
			continue
		}
		b := Bell{Where: x.Where, Case: x.Case, Setup: x.Setup, By: y.Setup}
		if x.turns(y, BellStore, &b.Store) && x.turns(y, BellLaunch, &b.Launch) && x.turns(y, BellWork, &b.Work) {
			out = append(out, b)
		}
	}
	return out
}

func (r *Report) whole(setup string) bool {
	for i := range r.Setups {
		if r.Setups[i].Name == setup {
			return r.Setups[i].Whole
		}
	}
	return false
}

// turns divides a figure by another's of the same turn.
func (x *Result) turns(y *Result, name string, to *stats.Summary) bool {
	a, b := x.figure(name), y.figure(name)
	if a == nil || b == nil || len(a.Value.Values) != len(b.Value.Values) {
		return false
	}
	var ratios []float64
	for i, v := range a.Value.Values {
		if w := b.Value.Values[i]; w > 0 {
			ratios = append(ratios, v/w)
		}
	}
	if len(ratios) == 0 {
		return false
	}
	*to = stats.Of(ratios)
	return true
}

func (x *Result) figure(name string) *Figure {
	for i := range x.Figures {
		if x.Figures[i].Name == name {
			return &x.Figures[i]
		}
	}
	return nil
}

// BellTable is the comparison for a person.
func (r *Report) BellTable() (title string, head []string, rows [][]string) {
	for _, b := range r.Bells {
		rows = append(rows, []string{
			titleOf(b.Where), b.Case, b.Setup + " / " + b.By, ShowRatio(b.Store.Median), ShowRatio(b.Launch.Median), ShowRatio(b.Work.Median),
		})
	}
	title = "A doorbell that is trapped by one that is found, medians of the turns; " + published
	return title, []string{"where", "case", "set-ups", "the store", "a launch", "until its work is done"}, rows
}

func titleOf(where string) string {
	for _, p := range places {
		if p.name == where {
			return p.title
		}
	}
	return where
}

func (r *Report) bells(b *strings.Builder) {
	title, head, rows := r.BellTable()
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	g := grid{indent: "  ", left: 3, head: head, rows: rows}
	g.write(b)
}

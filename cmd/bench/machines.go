package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// DefaultKernels are booted when nobody says which.
func DefaultKernels() []string { return []string{"6.12"} }

// inMachines boots every kernel on every set-up by turns.
func (r *run) inMachines(ctx context.Context) error {
	if !r.UseMachines() {
		return nil
	}
	r.out.Run.Boots = r.Boots
	rows := r.rows
	if len(r.Setups) == 0 {
		rows = slices.DeleteFunc(slices.Clone(rows), func(x setup.Row) bool { return x.Inside })
	}
	for _, k := range r.kernels() {
		if err := machine.Kernel(ctx, k, r.Progress); err != nil {
			r.failed("Linux "+k, err)
			continue
		}
		// The first machine after a while reads everything from disk: it is not measured.
		plans := machine.Plans(r.Only)
		r.say("Linux %s on %s, to warm up", k, rows[0].Name)
		began := time.Now()
		_, _, err := machine.Life(ctx, r.out.Run, &plans[0], rows[0], k, func(string) bool { return false }, r.Progress)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.foretell(plans, rows, k, time.Since(began), err)
		for i := range plans {
			lives := r.live(ctx, &plans[i], rows, k)
			r.out.Results = append(r.out.Results, lives.results()...)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return ctx.Err()
}

// live boots one kernel with each set-up by turns, for one plan.
func (r *run) live(ctx context.Context, plan *machine.Plan, rows []setup.Row, k string) *lives {
	rows = slices.DeleteFunc(slices.Clone(rows), func(x setup.Row) bool { return !plan.For(&x, r.asked) })
	lives := newLives(rows)
	for turn := range r.Boots {
		for i := range rows {
			if ctx.Err() != nil {
				return lives
			}
			row := rows[(i+turn)%len(rows)]
			r.say("Linux %s on %s, boot %d of %d", k, row.Name, turn+1, r.Boots)
			measured, e, err := machine.Life(ctx, r.out.Run, plan, row, k, r.asked, r.Progress)
			if e.QEMU != "" {
				r.out.Emulator = &e
			}
			if ctx.Err() != nil {
				continue // not a measurement's failure
			}
			if err != nil {
				r.failed(fmt.Sprintf("Linux %s on %s", k, row.Name), err)
				lives.failed(row.Name)
				continue
			}
			lives.add(row.Name, measured)
		}
	}
	return lives
}

// foretell says about how long the machines of one kernel will take: each boots and probes
// as the first one did, which had to read from disk besides, and then measures. One that failed
// foretells nothing.
func (r *run) foretell(plans []machine.Plan, rows []setup.Row, k string, one time.Duration, err error) {
	if err != nil {
		r.say("Linux %s on %s: %v", k, rows[0].Name, err) // who measures it will say so too
		return
	}
	n := 0
	for i := range plans {
		for j := range rows {
			if plans[i].For(&rows[j], r.asked) {
				n += r.Boots
			}
		}
	}
	r.say("%s more; that one, which only probed, took %.0f s, so about %.0f s", report.HowMany(n, "machine"), one.Seconds(), float64(n)*one.Seconds())
}

// lives are the measures of machines, by case and set-up.
type lives struct {
	rows  []setup.Row
	cases []machine.Measured // each once, for its name and parameters
	by    map[string]map[string][]report.Sample
	gone  map[string]bool // set-ups that failed a turn: their turns are no pairs any more
}

func newLives(rows []setup.Row) *lives {
	return &lives{rows: rows, by: map[string]map[string][]report.Sample{}, gone: map[string]bool{}}
}

func (l *lives) failed(setup string) { l.gone[setup] = true }

func (l *lives) add(setup string, measured []machine.Measured) {
	for _, m := range measured {
		key := m.Scenario + "\n" + m.Case
		if l.by[key] == nil {
			l.by[key] = map[string][]report.Sample{}
			l.cases = append(l.cases, m)
		}
		l.by[key][setup] = append(l.by[key][setup], m.Sample)
	}
}

// results are of the turns that every set-up went through, if there was one: a run that
// ended early may have broken one off.
func (l *lives) results() (out []report.Result) {
	for _, c := range l.cases {
		by := l.by[c.Scenario+"\n"+c.Case]
		// A set-up without any does not take the case, or is behind in the first turn.
		turns := 0
		for i := range l.rows {
			n := len(by[l.rows[i].Name])
			if n > 0 && !l.gone[l.rows[i].Name] && (turns == 0 || n < turns) {
				turns = n
			}
		}
		for name, all := range by {
			by[name] = all[:min(len(all), turns)]
		}
		var base []report.Sample
		for i := range l.rows {
			if l.rows[i].Name == report.PassThrough && !l.gone[l.rows[i].Name] {
				base = by[l.rows[i].Name]
			}
		}
		for i := range l.rows {
			name := l.rows[i].Name
			if l.gone[name] || len(by[name]) == 0 {
				continue
			}
			r := report.Result{Scenario: c.Scenario, Case: c.Case, Where: report.InMachine, Setup: name, Parameters: c.Parameters}
			r.Sum(by[name], base)
			out = append(out, r)
		}
	}
	return out
}

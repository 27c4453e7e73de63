package bench_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInProcess measures everything that needs no machine, with small parameters
// and one turn; package setup tries every set-up. It looks at counts, which do not
// depend on how busy the machine is.
func TestInProcess(t *testing.T) {
	var progress bytes.Buffer
	rows, err := setup.Choose([]string{report.PassThrough, "pass-through+map", setup.Naive, "lazy", "all"})
	require.NoError(t, err)
	r, err := bench.Run(t.Context(), bench.Options{
		Umbra: "test", Repeat: 1, Quick: true, InProcess: true, Setups: setup.Names(rows), Progress: &progress,
	})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	require.Contains(t, progress.String(), "growth: 10 x 128 MiB")
	var names []string
	for _, s := range r.Scenarios {
		names = append(names, s.Name)
	}
	require.Equal(t, bench.Scenarios(), names)

	requireSchema(t, r)
	require.Empty(t, r.Undescribed(), "each phase and figure is described in report.Columns")
	for _, x := range r.Results {
		for _, f := range x.Figures {
			c := report.ColumnOf(x.Scenario, x.Where, f.Name, true)
			switch f.Unit {
			case report.Nanoseconds:
				require.Equal(t, report.Less, c.Better, "%s, %s", x.Scenario, f.Name)
			case report.BytesPerSecond, report.EachSecond:
				require.Equal(t, report.More, c.Better, "%s, %s", x.Scenario, f.Name)
			}
		}
	}
	find := func(scenario, name, set string) *report.Result {
		t.Helper()
		x := r.Find(report.InProcess, scenario, name, set)
		require.NotNil(t, x, "%s, %s, %s", scenario, name, set)
		return x
	}
	count := func(x *report.Result, name string) float64 {
		t.Helper()
		require.Contains(t, x.Total.Counts, name)
		return x.Total.Counts[name].Median
	}
	entries := 16384.0
	for _, row := range rows {
		// A submission is one trap, whatever is in between.
		require.Equal(t, 500.0, count(find("storm", "500 submissions", row.Name), report.Writes), row.Name)
		// So is an entry of a table that is trapped; the rest are the invalidates.
		sparse := find("tables", "sparse, 16384 entries", row.Name)
		trapped := entries
		if row.Mapped() {
			trapped = 0
		}
		require.InDelta(t, trapped, count(sparse, report.Writes), 400, row.Name)
		require.Equal(t, 33.0, count(sparse, report.Invalidates), "one for 512 entries, and one at the end")
		if row.Whole {
			require.NotContains(t, sparse.Total.Counts, report.Scans, row.Name)
		}
	}
	require.Equal(t, 1.0, find("tables", "sparse, 16384 entries", report.PassThrough).Ratio.Median, "the baseline against itself")
	// The naive set-up scans at each invalidate, and all there is each time.
	naive := find("tables", "sparse, 16384 entries", setup.Naive)
	require.Equal(t, 33.0, count(naive, report.Scans))
	small, large := find("growth", "1 x 128 MiB", setup.Naive), find("growth", "10 x 128 MiB", setup.Naive)
	require.Equal(t, count(small, report.Scans), count(large, report.Scans))
	require.Greater(t, count(large, report.Examined), 3*count(small, report.Examined), "the work of a full scan grows with the tables")

	// Lazy shadows wait for work; incremental ones do not look at what stays.
	require.LessOrEqual(t, count(find("tables", "sparse, 16384 entries", "lazy"), report.Scans), 2.0, "one submission, and what was begun")
	for _, name := range []string{"1 x 128 MiB", "10 x 128 MiB"} {
		x := find("growth", name, "all")
		require.Less(t, count(x, report.Examined), 5*2*float64(shadowpt.BigEntries+shadowpt.DirEntries), "5 changes, whatever the tables hold")
	}
	classes := map[string]int{}
	for _, x := range r.Traps {
		classes[x.Setup]++
	}
	require.Equal(t, 16, classes[setup.Naive])
	require.Equal(t, 5, classes["all"], "registers, doorbell and configuration are trapped, nothing else")
	require.Len(t, r.Ablation(report.InProcess), len(rows))
	require.NotNil(t, r.Model)
	require.Contains(t, r.Text(), "A storm of page-table updates [tables]")
}

// TestBells: doorbells with each scheduler, trapped and found, and what is made of them.
func TestBells(t *testing.T) {
	trapped := []string{"lazy+incremental", setup.All}
	r, err := bench.Run(t.Context(), bench.Options{
		Repeat: 1, Quick: true, InProcess: true, Only: []string{report.Bells}, Setups: append(trapped, setup.Naive, "pass-through+map", report.AllPoll), Progress: io.Discard,
	})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	requireSchema(t, r)
	require.Empty(t, r.Undescribed())
	var compared []string
	for _, b := range r.Bells {
		require.Equal(t, report.AllPoll, b.By)
		compared = append(compared, b.Case+": "+b.Setup)
		require.Positive(t, b.Store.Median)
		require.Positive(t, b.Launch.Median)
		require.Positive(t, b.Work.Median)
	}
	var want []string
	for _, c := range []string{"no scheduler", "credit", "credit, one at a time"} {
		for _, name := range trapped {
			want = append(want, c+": "+name)
		}
		require.Nil(t, r.Find(report.InProcess, report.Bells, c, setup.Naive), "it tells nothing that the others do not")
		whole := r.Find(report.InProcess, report.Bells, c, "pass-through+map")
		require.Equal(t, c == "no scheduler", whole != nil, "the whole card has no scheduler")
		for _, name := range append(trapped, report.AllPoll) {
			x := r.Find(report.InProcess, report.Bells, c, name)
			require.NotNil(t, x)
			var figures []string
			for _, f := range x.Figures {
				figures = append(figures, f.Name)
			}
			require.Equal(t, []string{"store", "store p99", "server, a store", "launch", "launch p99", "work", "work p99", "server, a launch", "wakes", "one of 8"}, figures)
			rings := 0.0 // of all phases: the server may hear of the last ones of a phase in the next
			for _, p := range x.Phases {
				rings += p.Counts[report.Writes].Median
			}
			want := 100.0 + 100 + 100 + 96
			if name == report.AllPoll {
				want = 0
			}
			require.Equal(t, want, rings, "%s, %s", c, name)
		}
	}
	require.Equal(t, want, compared)
	require.Contains(t, r.Text(), "11 to 63 in a virtual machine")
	require.Contains(t, r.Text(), "  Not measured with naive\n")
}

// requireSchema holds a real report against the schema, and sees that it survives
// being written and read.
func requireSchema(t *testing.T, r *report.Report) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Encode(&b))
	wrong, err := report.Validate(b.Bytes())
	require.NoError(t, err)
	require.Empty(t, wrong)
	again, err := report.Decode(&b)
	require.NoError(t, err)
	require.Equal(t, r.Results, again.Results)
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		o    bench.Options
		says string
	}{
		{bench.Options{Only: []string{"tabels"}}, `--only: tabels: no such scenario; did you mean "tables"? There are probe, suspend, contexts`},
		{bench.Options{Setups: []string{"navie"}}, `--setups: navie: no such set-up; did you mean "naive"? There are pass-through, pass-through+map, naive, lazy`},
		{bench.Options{Repeat: -1}, "--repeat: -1: must be 1 or more"},
		{bench.Options{InProcess: true, Machines: true}, "--in-process and --machines: leave nothing to measure"},
		{bench.Options{}, "--boots: 0: must be 1 or more; --in-process boots nothing"},
		{bench.Options{Boots: 1, Kernels: []string{"5.10"}}, "--kernels: 5.10: no such kernel; "},
		{bench.Options{Boots: 1, Machines: true, Only: []string{"probe", "growth"}}, "--only: growth: growth is not measured in virtual machines; those are probe, contexts"},
		{bench.Options{InProcess: true, Only: []string{"bells"}, Setups: []string{"naive", "lazy"}}, "--setups: naive,lazy: bells is not measured with it; it is with pass-through, pass-through+map, lazy+incremental"},
		{bench.Options{Boots: 1, Machines: true, Only: []string{"bells"}, Setups: []string{"naive"}}, "bells is not measured with it; it is with pass-through"},
	} {
		c.o.Progress = io.Discard
		if c.o.Repeat == 0 {
			c.o.Repeat = 1
		}
		_, err := bench.Run(t.Context(), c.o)
		require.ErrorContains(t, err, c.says)
		require.IsType(t, new(config.Error), err)
	}
}

// What is named is refused where it is not measured, and nowhere else.
func TestCheckTakesWhatIsMeasured(t *testing.T) {
	for _, name := range bench.Scenarios() {
		inside := bench.Options{Repeat: 1, InProcess: true, Only: []string{name}}
		require.NoError(t, inside.Check(), name)
		machines := bench.Options{Repeat: 1, Boots: 1, Machines: true, Only: []string{name}}
		if slices.Contains([]string{"program", "growth", "crowd"}, name) {
			require.ErrorContains(t, machines.Check(), name+" is not measured in virtual machines")
		} else {
			require.NoError(t, machines.Check(), name)
		}
		either := bench.Options{Repeat: 1, Boots: 1, Only: []string{name}}
		require.NoError(t, either.Check())
		require.Equal(t, machines.Check() == nil, either.UseMachines(), name)
	}
}

// The list says what each scenario is measured with, where that is not all.
func TestListNamesSetups(t *testing.T) {
	l := bench.List()
	some := map[string][]string{}
	for _, s := range l.Scenarios {
		if s.Setups != nil {
			some[s.Name] = s.Setups
		}
		if s.Name != report.Bells {
			require.Nil(t, s.MachinesSetups, s.Name)
		}
	}
	rung := []string{report.PassThrough, "pass-through+map", "lazy+incremental", setup.All, report.AllPoll}
	require.Equal(t, rung, some[report.Bells])
	require.Len(t, some["neighbour"], len(setup.Rows)-2)
	require.Len(t, some, 2)
	require.Regexp(t, `(?m)^  bells .* With pass-through, pass-through\+map, lazy\+incremental, all, all\+poll alone\.$`, l.Text())
	require.Regexp(t, `(?m)^  neighbour .* In this process with all but pass-through, pass-through\+map\.$`, l.Text())
}

// What cannot be compared is known before it is measured, as far as it can be.
func TestComparable(t *testing.T) {
	foreseen := func(_ *report.Comparison, err error) error { return err }
	only := func(names ...string) bench.Options {
		return bench.Options{Repeat: 1, Boots: 1, Quick: true, Only: names, Setups: []string{"all"}, Progress: io.Discard}
	}
	o := only("probe", "contexts")
	inside := o
	inside.InProcess = true
	then, err := bench.Run(t.Context(), inside)
	require.NoError(t, err)
	require.NoError(t, foreseen(o.Foresee(then)))

	other := only("contexts", "tables")
	require.NoError(t, foreseen(other.Foresee(then)), "some of it")
	other = only("tables")
	require.ErrorIs(t, foreseen(other.Foresee(then)), report.ErrNotComparable)
	require.ErrorContains(t, foreseen(other.Foresee(then)), "results: measured here, not measured there")
	other = only("traps")
	require.ErrorContains(t, foreseen(other.Foresee(then)), "single accesses are not compared")
	other = o
	other.Setups = []string{"lazy"}
	require.ErrorIs(t, foreseen(other.Foresee(then)), report.ErrNotComparable)
	other = o
	other.Quick = false // of the probe's parameters none is small
	require.NoError(t, foreseen(other.Foresee(then)))
	other = o
	other.Machines = true
	require.ErrorContains(t, foreseen(other.Foresee(then)), "that report has nothing that this run would measure")

	// Machines: by their kernel, with the set-up as it was.
	x := then.Results[0]
	x.Where, x.Case = report.InMachine, "Linux 6.12"
	then.Results = append(then.Results, x)
	require.NoError(t, foreseen(other.Foresee(then)))
	other.Kernels = []string{"6.1"}
	require.ErrorIs(t, foreseen(other.Foresee(then)), report.ErrNotComparable)
	other.Kernels = nil
	then.Setups[0].Options["gpu.bar-map"] = "none"
	require.ErrorContains(t, foreseen(other.Foresee(then)), "options of all.gpu.bar-map: all here, none there")
	then.Machine.Processors = 4096
	require.ErrorContains(t, foreseen(o.Foresee(then)), "machine.processors")
}

// Where no machine can be had, that is said before anything is measured.
func TestNoMachines(t *testing.T) {
	for _, c := range []struct {
		o      bench.Options
		remedy string
	}{
		{bench.Options{Only: []string{"probe"}}, "; or do without: --in-process"},
		{bench.Options{Machines: true}, ""},
	} {
		var progress bytes.Buffer
		c.o.Repeat, c.o.Boots, c.o.Quick, c.o.Setups, c.o.Progress = 1, 1, true, []string{"all"}, &progress
		c.o.Possible = func() error { return errors.New("no checkout") }
		_, err := bench.Run(t.Context(), c.o)
		require.EqualError(t, err, "virtual machines: none can be booted from here: no checkout"+c.remedy)
		require.Empty(t, progress.String())
	}
	// What needs no machine does not ask.
	_, err := bench.Run(t.Context(), bench.Options{
		Repeat: 1, Boots: 1, Quick: true, Only: []string{"program"}, Setups: []string{"all"}, Progress: io.Discard, Busy: 4096,
		Possible: func() error { return errors.New("no checkout") },
	})
	require.NoError(t, err)
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := bench.Run(ctx, bench.Options{Repeat: 1, InProcess: true, Only: []string{"probe"}, Progress: io.Discard})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, r.Results)
}

// A run that is ended has what it had measured, and says that it is not all.
func TestEndedEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := bench.Run(ctx, bench.Options{
		Repeat: 1, Quick: true, InProcess: true, Only: []string{"probe", "suspend"}, Setups: []string{"all"},
		Progress: until("suspend: ", cancel),
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, r.Results, 1)
	require.Equal(t, "probe", r.Results[0].Scenario)
	require.Equal(t, []string{"the run was ended before it was done"}, r.Errors)
	requireSchema(t, r)
}

// until calls then when a line of progress has text in it.
func until(text string, then func()) io.Writer { return &untilWriter{text, then} }

type untilWriter struct {
	text string
	then func()
}

func (w *untilWriter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.then()
	}
	return len(p), nil
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

// TestFollow: what the command line does not say is as in the report, and what it says stays.
func TestFollow(t *testing.T) {
	list := bench.List()
	whole := func(where ...string) *report.Report {
		r := &report.Report{Run: report.Run{Repeat: 5, Boots: 2}}
		for _, s := range list.Scenarios {
			r.Scenarios = append(r.Scenarios, report.Scenario{Name: s.Name})
		}
		for _, s := range list.Setups {
			r.Setups = append(r.Setups, report.Setup{Name: s.Name})
		}
		for _, w := range where {
			name := "x"
			if w == report.InMachine {
				name = "Linux 6.12, x"
			}
			r.Results = append(r.Results, report.Result{Scenario: "probe", Case: name, Where: w, Setup: "all"})
		}
		return r
	}
	quick := whole(report.InProcess)
	quick.Run.Quick = true
	old := whole(report.InMachine)
	old.Results[0].Case = "Linux 6.1"
	few := whole(report.InProcess, report.InMachine)
	few.Scenarios, few.Setups = few.Scenarios[:2], append(few.Setups[:1:1], report.Setup{Name: "forgotten"})
	unknown := whole(report.InProcess)
	unknown.Setups = []report.Setup{{Name: "forgotten"}}
	three, yes, no := 3, true, false
	for _, c := range []struct {
		name string
		c    benchRunCmd
		then *report.Report
		want []string
	}{
		{"everything", benchRunCmd{}, whole(report.InProcess, report.InMachine), nil},
		{"quick, here", benchRunCmd{}, quick, []string{"--quick", "--in-process"}},
		{"quick is said", benchRunCmd{Quick: &yes}, quick, []string{"--in-process"}},
		{"not quick is said", benchRunCmd{Quick: &no}, quick, []string{"--in-process"}},
		{"a place is said", benchRunCmd{Machines: true}, quick, []string{"--quick"}},
		{"boots are of machines", benchRunCmd{Boots: &three}, quick, []string{"--quick"}},
		{"another kernel", benchRunCmd{}, old, []string{"--machines", "--kernels 6.1"}},
		{"turns are of this process", benchRunCmd{Repeat: &three}, old, []string{"--kernels 6.1"}},
		{"a kernel is said", benchRunCmd{Kernels: []string{"7.2"}}, old, []string{"--machines"}},
		{"few", benchRunCmd{}, few, []string{"--only probe,suspend", "--setups pass-through"}},
		{"scenarios are said", benchRunCmd{Only: []string{"copy"}}, few, []string{"--setups pass-through"}},
		{"set-ups are said", benchRunCmd{Setups: []string{"naive"}}, few, []string{"--only probe,suspend"}},
		{"what there is no more", benchRunCmd{}, unknown, []string{"--in-process"}},
		{"what would not go", benchRunCmd{Only: []string{"bells"}, InProcess: true}, func() *report.Report {
			r := whole(report.InProcess)
			r.Setups = []report.Setup{{Name: "naive"}}
			return r
		}(), nil},
		{"nothing was measured", benchRunCmd{}, &report.Report{Scenarios: few.Scenarios}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := bench.Options{Repeat: 5, Boots: 2, Quick: c.c.Quick != nil && *c.c.Quick, InProcess: c.c.InProcess, Machines: c.c.Machines, Only: c.c.Only, Setups: c.c.Setups, Kernels: c.c.Kernels}
			before := o
			require.Equal(t, c.want, c.c.follow(&o, c.then))
			require.Equal(t, c.want == nil, optionsAlike(&o, &before))
			require.NoError(t, o.Check())
		})
	}
}

// optionsAlike compares what follow may change.
func optionsAlike(a, b *bench.Options) bool {
	return a.Quick == b.Quick && a.InProcess == b.InProcess && a.Machines == b.Machines &&
		len(a.Only) == len(b.Only) && len(a.Setups) == len(b.Setups) && len(a.Kernels) == len(b.Kernels)
}

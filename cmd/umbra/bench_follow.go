package main

import (
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

// follow has what the command line says nothing of measured as it was for another report, and
// says which flags would have said so: what differs would have no ratio in the end. A report
// that cannot be followed is left to who compares.
func (c *benchRunCmd) follow(o *bench.Options, then *report.Report) []string {
	p := *o
	as := slices.Concat(c.followQuick(&p, then), c.followPlace(&p, then), followScenarios(&p, then), followSetups(&p, then))
	if p.Check() != nil || len(then.Results) == 0 {
		return nil
	}
	*o = p
	return as
}

func (c *benchRunCmd) followQuick(o *bench.Options, then *report.Report) []string {
	if c.Quick != nil || !then.Run.Quick {
		return nil
	}
	o.Quick = true
	if c.Repeat == nil {
		o.Repeat = benchQuickTurns
	}
	if c.Boots == nil {
		o.Boots = 1
	}
	return []string{"--quick"}
}

// followPlace has it measured where the other was, and on the same kernels. Flags that want a
// place are not left without effect.
func (c *benchRunCmd) followPlace(o *bench.Options, then *report.Report) (as []string) {
	var inside, machines bool
	var kernels []string
	for i := range then.Results {
		x := &then.Results[i]
		if x.Where == report.InProcess {
			inside = true
			continue
		}
		machines = true
		linux, _, _ := strings.Cut(x.Case, ", ")
		if k, ok := strings.CutPrefix(linux, "Linux "); ok && !slices.Contains(kernels, k) {
			kernels = append(kernels, k)
		}
	}
	switch {
	case o.InProcess || o.Machines:
	case inside && !machines && c.Boots == nil && len(c.Kernels) == 0:
		o.InProcess = true
		as = append(as, "--in-process")
	case machines && !inside && c.Repeat == nil:
		o.Machines = true
		as = append(as, "--machines")
	}
	if len(o.Kernels) == 0 && !o.InProcess && machines && !slices.Equal(kernels, bench.DefaultKernels()) {
		o.Kernels = kernels
		as = append(as, "--kernels "+strings.Join(kernels, ","))
	}
	return as
}

// followScenarios names those of the other, if it has not all: to name one may be to ask for
// more of it.
func followScenarios(o *bench.Options, then *report.Report) []string {
	if len(o.Only) > 0 {
		return nil
	}
	all := true
	var names []string
	for _, s := range bench.List().Scenarios {
		there := slices.ContainsFunc(then.Scenarios, func(x report.Scenario) bool { return x.Name == s.Name })
		if there {
			names = append(names, s.Name)
		}
		all = all && (there || o.Machines && !s.Machines)
	}
	if all || len(names) == 0 {
		return nil
	}
	o.Only = names
	return []string{"--only " + strings.Join(names, ",")}
}

// followSetups names those of the other, if they are not the usual ones.
func followSetups(o *bench.Options, then *report.Report) []string {
	if len(o.Setups) > 0 {
		return nil
	}
	usual := true
	var names []string
	for _, s := range bench.List().Setups {
		there := slices.ContainsFunc(then.Setups, func(x report.Setup) bool { return x.Name == s.Name })
		if there {
			names = append(names, s.Name)
		}
		usual = usual && there
	}
	if usual || len(names) == 0 {
		return nil
	}
	o.Setups = names
	return []string{"--setups " + strings.Join(names, ",")}
}

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
func (c *benchRunCmd) follow(o *bench.Options, then *report.Report) (as []string) {
	p, list := *o, bench.List()
	if c.Quick == nil && then.Run.Quick {
		p.Quick = true
		if c.Repeat == nil {
			p.Repeat = benchQuickTurns
		}
		if c.Boots == nil {
			p.Boots = 1
		}
		as = append(as, "--quick")
	}
	var inside, machines bool
	var kernels []string
	for i := range then.Results {
		x := &then.Results[i]
		inside, machines = inside || x.Where == report.InProcess, machines || x.Where == report.InMachine
		linux, _, _ := strings.Cut(x.Case, ", ")
		if k, ok := strings.CutPrefix(linux, "Linux "); ok && x.Where == report.InMachine && !slices.Contains(kernels, k) {
			kernels = append(kernels, k)
		}
	}
	if !p.InProcess && !p.Machines {
		switch {
		case inside && !machines && c.Boots == nil && len(c.Kernels) == 0:
			p.InProcess = true
			as = append(as, "--in-process")
		case machines && !inside && c.Repeat == nil:
			p.Machines = true
			as = append(as, "--machines")
		}
	}
	if len(p.Only) == 0 {
		all := true
		for _, s := range list.Scenarios {
			there := slices.ContainsFunc(then.Scenarios, func(x report.Scenario) bool { return x.Name == s.Name })
			if there {
				p.Only = append(p.Only, s.Name)
			} else if !p.Machines || s.Machines {
				all = false
			}
		}
		if all { // to name a scenario may be to ask for more of it
			p.Only = nil
		} else {
			as = append(as, "--only "+strings.Join(p.Only, ","))
		}
	}
	if len(p.Setups) == 0 {
		usual := true
		for _, s := range list.Setups {
			there := slices.ContainsFunc(then.Setups, func(x report.Setup) bool { return x.Name == s.Name })
			if there {
				p.Setups = append(p.Setups, s.Name)
			}
			usual = usual && there == !s.Asked
		}
		if usual {
			p.Setups = nil
		} else {
			as = append(as, "--setups "+strings.Join(p.Setups, ","))
		}
	}
	if len(p.Kernels) == 0 && !p.InProcess && len(kernels) > 0 && !slices.Equal(kernels, bench.DefaultKernels()) {
		p.Kernels = kernels
		as = append(as, "--kernels "+strings.Join(kernels, ","))
	}
	if p.Check() != nil || len(then.Results) == 0 {
		return nil
	}
	*o = p
	return as
}

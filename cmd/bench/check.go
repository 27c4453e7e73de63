package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Check refuses options that make no sense, as Run does: who has something to say before it
// runs asks first.
func (o *Options) Check() error {
	rows, err := setup.Choose(o.Setups)
	if err != nil {
		return err
	}
	for _, n := range o.Only {
		if known := Scenarios(); !slices.Contains(known, n) {
			return &config.Error{Where: "--only", Value: n, Reason: "no such scenario; " + config.Known(n, known)}
		}
	}
	if o.Repeat < 1 {
		return &config.Error{Where: "--repeat", Value: fmt.Sprint(o.Repeat), Reason: "must be 1 or more"}
	}
	if o.InProcess && o.Machines {
		return &config.Error{Where: "--in-process and --machines", Reason: "leave nothing to measure; give one of them, or neither"}
	}
	if err := o.checkMachines(); err != nil {
		return err
	}
	for _, n := range o.Only {
		if err := o.checkScenario(n, rows); err != nil {
			return err
		}
	}
	return nil
}

// checkMachines refuses what cannot be booted.
func (o *Options) checkMachines() error {
	if o.InProcess {
		return nil
	}
	if o.Boots < 1 {
		return &config.Error{Where: "--boots", Value: fmt.Sprint(o.Boots), Reason: "must be 1 or more; --in-process boots nothing"}
	}
	for _, k := range o.Kernels {
		if !slices.Contains(machine.Kernels, k) {
			return &config.Error{Where: "--kernels", Value: k, Reason: "no such kernel; " + config.Known(k, machine.Kernels)}
		}
	}
	return nil
}

// checkScenario refuses a scenario of which nothing would be measured.
func (o *Options) checkScenario(name string, rows []setup.Row) error {
	if o.Machines && !slices.Contains(machine.Scenarios(), name) {
		return &config.Error{Where: "--only", Value: name, Reason: fmt.Sprintf("%s is not measured in virtual machines; those are %s", name, strings.Join(machine.Scenarios(), ", "))}
	}
	if o.takes(name, rows) {
		return nil
	}
	var others []string
	for i := range setup.Rows {
		if o.takes(name, setup.Rows[i:i+1]) {
			others = append(others, setup.Rows[i].Name)
		}
	}
	return &config.Error{Where: "--setups", Value: strings.Join(setup.Names(rows), ","), Reason: fmt.Sprintf("%s is not measured with it; it is with %s", name, strings.Join(others, ", "))}
}

// takes tells whether a scenario is measured with any of some set-ups.
func (o *Options) takes(name string, rows []setup.Row) bool {
	this := func(scenario string) bool { return scenario == name }
	for i := range rows {
		row := &rows[i]
		if !o.Machines && (name == traps || len(o.planned(this, row)) > 0) {
			return true
		}
		for _, p := range machine.Plans(o.Only) {
			if !o.InProcess && p.For(row, this) {
				return true
			}
		}
	}
	return false
}

// planned are the results that there will be of this process with a set-up, not measured yet.
func (o *Options) planned(asked func(scenario string) bool, row *setup.Row) (out []report.Result) {
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		if !asked(s.Name) {
			continue
		}
		for _, c := range s.Cases(report.Run{Repeat: o.Repeat, Quick: o.Quick, BusyBytes: o.Busy}) {
			if c.Takes(row) {
				out = append(out, report.Result{Scenario: s.Name, Case: c.Name, Where: report.InProcess, Setup: row.Name, Parameters: c.Parameters})
			}
		}
	}
	return out
}

// asked tells whether a scenario is to be measured.
func (o *Options) asked(name string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, name) }

// UseMachines tells whether anything is measured in virtual machines.
func (o *Options) UseMachines() bool {
	return !o.InProcess && slices.ContainsFunc(machine.Scenarios(), o.asked)
}

// UseProcess tells whether anything is measured in this process.
func (o *Options) UseProcess() bool { return !o.Machines }

// kernels that are booted.
func (o *Options) kernels() []string {
	if len(o.Kernels) == 0 {
		return DefaultKernels()
	}
	return o.Kernels
}

// CheckPlace refuses to begin where what is asked for cannot be measured in the end: no virtual
// machine can be booted from here.
func (o *Options) CheckPlace() error {
	if !o.UseMachines() {
		return nil
	}
	possible := o.Possible
	if possible == nil {
		possible = machine.Possible
	}
	err := possible()
	if err == nil {
		return nil
	}
	reason := fmt.Sprintf("none can be booted from here: %v", err) // which says what to do
	if o.UseProcess() {
		reason += "; or do without: --in-process"
	}
	return &config.Error{Where: "virtual machines", Reason: reason}
}

// Foresee compares with another report what would be measured, of which it is known before
// that it could be compared, or not. It fails with [report.ErrNotComparable] if nothing could
// be. What machines will be found to run on is not known yet, and is taken to be what the
// other report's ran on.
func (o *Options) Foresee(then *report.Report) (*report.Comparison, error) {
	rows, err := setup.Choose(o.Setups)
	if err != nil {
		return nil, err
	}
	now := &report.Report{Machine: report.ThisMachine(), Emulator: then.Emulator, Setups: listed(rows)}
	if err := report.SameMachine(now.Machine, then.Machine); err != nil {
		return nil, err
	}
	for i := range rows {
		if o.UseProcess() {
			now.Results = append(now.Results, o.planned(o.asked, &rows[i])...)
		}
	}
	for i := range then.Results {
		x := &then.Results[i]
		if o.UseMachines() && x.Where == report.InMachine && o.asked(x.Scenario) && slices.Contains(setup.Names(rows), x.Setup) && o.boots(x.Case) {
			now.Results = append(now.Results, *x)
		}
	}
	if len(now.Results) == 0 {
		return nil, fmt.Errorf("%w: that report has nothing that this run would measure and compare (single accesses are not compared)", report.ErrNotComparable)
	}
	return report.Compare(now, then)
}

// boots tells whether a case is of a kernel that is booted.
func (o *Options) boots(name string) bool {
	linux, _, _ := strings.Cut(name, ", ")
	return slices.ContainsFunc(o.kernels(), func(k string) bool { return linux == "Linux "+k })
}

// listed are set-ups as a report has them.
func listed(rows []setup.Row) (out []report.Setup) {
	for i := range rows {
		out = append(out, report.Setup{Name: rows[i].Name, About: rows[i].About, Whole: rows[i].Whole, Options: rows[i].Options()})
	}
	return out
}

package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Listed is a scenario or a set-up that can be measured.
type Listed struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Process  bool   `json:"process"`  // measured in this process
	Machines bool   `json:"machines"` // measured in virtual machines
	Default  bool   `json:"default"`  // measured if nothing is named
}

// Listing is what can be measured.
type Listing struct {
	Scenarios []Listed `json:"scenarios"`
	Setups    []Listed `json:"setups"`
}

// List returns what can be measured.
func List() (l Listing) {
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		in := slices.Contains(machine.Scenarios(), s.Name)
		l.Scenarios = append(l.Scenarios, Listed{s.Name, s.About, true, in, true})
	}
	l.Scenarios = append(l.Scenarios, Listed{machine.Bandwidth, machine.BandwidthAbout, false, true, true})
	for _, r := range setup.Rows {
		l.Setups = append(l.Setups, Listed{r.Name, r.About, true, true, !r.Asked})
	}
	return l
}

// Text returns the listing with one line for each entry.
func (l *Listing) Text() string {
	var b strings.Builder
	b.WriteString("Scenarios (p: in this process, m: in virtual machines)\n")
	for _, s := range l.Scenarios {
		p, m := "-", "-"
		if s.Process {
			p = "p"
		}
		if s.Machines {
			m = "m"
		}
		fmt.Fprintf(&b, "  %-10s %s%s  %s\n", s.Name, p, m, s.About)
	}
	b.WriteString("\nSet-ups (*: only if --setups names it, or every)\n")
	for _, s := range l.Setups {
		mark := "*"
		if s.Default {
			mark = " "
		}
		fmt.Fprintf(&b, "  %-17s %s  %s\n", s.Name, mark, s.About)
	}
	return b.String()
}

// Check refuses options that make no sense.
func (o *Options) Check() error {
	if _, err := setup.Choose(o.Setups); err != nil {
		return err
	}
	var known, here []string
	for _, s := range List().Scenarios {
		known = append(known, s.Name)
		if s.Process && !o.Machines || s.Machines && !o.InProcess {
			here = append(here, s.Name)
		}
	}
	if o.InProcess && o.Machines {
		return &config.Error{Where: "--in-process and --machines", Reason: "leave nothing to measure; give one of them, or neither"}
	}
	for _, n := range o.Only {
		if !slices.Contains(known, n) {
			return &config.Error{Where: "--only", Value: n, Reason: "no such scenario; " + config.Known(n, known)}
		}
		if !slices.Contains(here, n) {
			return &config.Error{Where: "--only", Value: n, Reason: "not measured there; these are: " + strings.Join(here, ", ")}
		}
	}
	if o.Turns < 1 {
		return &config.Error{Where: "--repeat", Value: fmt.Sprint(o.Turns), Reason: "must be 1 or more"}
	}
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

// CheckPlace refuses to begin where no virtual machine can be booted but should be.
func (o *Options) CheckPlace() error {
	if !o.UseMachines() {
		return nil
	}
	err := machine.Possible()
	if err == nil {
		return nil
	}
	reason := fmt.Sprintf("none can be booted from here: %v", err)
	if !o.Machines {
		reason += "; or measure without: --in-process"
	}
	return &config.Error{Where: "virtual machines", Reason: reason}
}

// asked reports whether a scenario is to be measured.
func (o *Options) asked(name string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, name) }

// UseMachines reports whether anything is measured in virtual machines.
func (o *Options) UseMachines() bool {
	return !o.InProcess && slices.ContainsFunc(machine.Scenarios(), o.asked)
}

func (o *Options) kernels() []string {
	if len(o.Kernels) == 0 {
		return []string{DefaultKernel}
	}
	return o.Kernels
}

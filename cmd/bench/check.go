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

// scenario says where a scenario can be measured.
type scenario struct {
	name, about       string
	process, machines bool
}

func scenarios() (out []scenario) {
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		out = append(out, scenario{s.Name, s.About, true, slices.Contains(machine.Scenarios(), s.Name)})
	}
	return append(out, scenario{machine.Bandwidth, machine.BandwidthAbout, false, true}, scenario{machine.OpenCL, machine.OpenCLAbout, false, true})
}

// List describes what can be measured, with one line for each scenario and set-up.
func List() string {
	mark := func(set bool, sign string) string {
		if set {
			return sign
		}
		return "-"
	}
	var b strings.Builder
	b.WriteString("Scenarios (p: in this process, m: in virtual machines)\n")
	for _, s := range scenarios() {
		fmt.Fprintf(&b, "  %-10s %s%s  %s\n", s.name, mark(s.process, "p"), mark(s.machines, "m"), s.about)
	}
	b.WriteString("\nSet-ups (*: only if --setups names it, or every)\n")
	for _, r := range setup.Rows {
		fmt.Fprintf(&b, "  %-17s %s  %s\n", r.Name, mark(r.Asked, "*"), r.About)
	}
	return b.String()
}

// Check refuses options that make no sense.
func (o *Options) Check() error {
	if _, err := setup.Choose(o.Setups); err != nil {
		return err
	}
	var known, here []string
	for _, s := range scenarios() {
		known = append(known, s.name)
		if s.process && !o.Machines || s.machines && !o.InProcess {
			here = append(here, s.name)
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
	if o.Rounds < 1 {
		return &config.Error{Where: "--repeat", Value: fmt.Sprint(o.Rounds), Reason: "must be 1 or more"}
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

// asked reports whether a scenario is to be measured.
func (o *Options) asked(name string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, name) }

// useMachines reports whether anything is measured in virtual machines.
func (o *Options) useMachines() bool {
	return !o.InProcess && slices.ContainsFunc(machine.Scenarios(), o.asked)
}

func (o *Options) kernels() []string {
	if len(o.Kernels) == 0 {
		return []string{DefaultKernel}
	}
	return o.Kernels
}

package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// Listing is what can be measured.
type Listing struct {
	Scenarios []ListedScenario `json:"scenarios"`
	Setups    []ListedSetup    `json:"setups"`
}

// ListedScenario is a scenario that can be measured.
type ListedScenario struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	About    string `json:"about"`
	Machines bool   `json:"machines"` // by virtual machines, too
}

// ListedSetup is a way to serve a GPU.
type ListedSetup struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Asked and AskedInMachines say that it is measured only if it is named: always, or
	// by virtual machines.
	Asked           bool `json:"asked"`
	AskedInMachines bool `json:"asked_in_machines"`
}

// List says what can be measured.
func List() (l Listing) {
	add := func(name, title, about string) {
		l.Scenarios = append(l.Scenarios, ListedScenario{name, title, about, slices.Contains(machine.Scenarios(), name)})
	}
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		add(s.Name, s.Title, s.About)
	}
	add(ofTraps.Name, ofTraps.Title, ofTraps.About)
	for _, r := range setup.Rows {
		l.Setups = append(l.Setups, ListedSetup{r.Name, r.About, r.Asked, r.Asked || r.Inside})
	}
	return l
}

// Text is the listing for a person.
func (l *Listing) Text() string {
	var b strings.Builder
	b.WriteString("Scenarios; * those of virtual machines too\n")
	for _, s := range l.Scenarios {
		mark := " "
		if s.Machines {
			mark = "*"
		}
		fmt.Fprintf(&b, "  %-9s %s  %s. %s.\n", s.Name, mark, s.Title, s.About)
	}
	b.WriteString("\nSet-ups; only if --setups names them: * those, + those in virtual machines\n")
	for _, s := range l.Setups {
		mark := " "
		switch {
		case s.Asked:
			mark = "*"
		case s.AskedInMachines:
			mark = "+"
		}
		fmt.Fprintf(&b, "  %-16s %s  %s\n", s.Name, mark, s.About)
	}
	return b.String()
}

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
	// Setups are those that it is measured with, if not with all: in this process, and in
	// virtual machines.
	Setups         []string `json:"setups,omitempty"`
	MachinesSetups []string `json:"machines_setups,omitempty"`
}

// ListedSetup is a way to serve a GPU.
type ListedSetup struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// AskedInMachines says that virtual machines measure it only if it is named.
	AskedInMachines bool `json:"asked_in_machines"`
}

// List says what can be measured.
func List() (l Listing) {
	add := func(name, title, about string) {
		s := ListedScenario{Name: name, Title: title, About: about, Machines: slices.Contains(machine.Scenarios(), name)}
		s.Setups = taken(name, Options{Repeat: 1, InProcess: true})
		if s.Machines {
			s.MachinesSetups = taken(name, Options{Repeat: 1, Boots: 1, Machines: true})
		}
		l.Scenarios = append(l.Scenarios, s)
	}
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		add(s.Name, s.Title, s.About)
	}
	add(ofTraps.Name, ofTraps.Title, ofTraps.About)
	for _, r := range setup.Rows {
		l.Setups = append(l.Setups, ListedSetup{r.Name, r.About, r.Inside})
	}
	return l
}

// taken are the set-ups that a scenario is measured with, nil for all.
func taken(name string, o Options) (names []string) {
	o.Only = []string{name}
	for i := range setup.Rows {
		if o.takes(name, setup.Rows[i:i+1]) {
			names = append(names, setup.Rows[i].Name)
		}
	}
	if len(names) == len(setup.Rows) {
		return nil
	}
	return names
}

// with says which set-ups a scenario is measured with, if not with all; of two lists the
// shorter.
func (s *ListedScenario) with() string {
	if s.Setups == nil {
		return ""
	}
	text := "With "
	if s.Machines && !slices.Equal(s.Setups, s.MachinesSetups) {
		text = "In this process with "
	}
	var not []string
	for _, n := range setup.Names(setup.Rows) {
		if !slices.Contains(s.Setups, n) {
			not = append(not, n)
		}
	}
	if len(not) < len(s.Setups) {
		return " " + text + "all but " + strings.Join(not, ", ") + "."
	}
	return " " + text + strings.Join(s.Setups, ", ") + " alone."
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
		fmt.Fprintf(&b, "  %-9s %s  %s. %s.%s\n", s.Name, mark, s.Title, s.About, s.with())
	}
	b.WriteString("\nSet-ups; virtual machines measure those with + only if --setups names them\n")
	for _, s := range l.Setups {
		mark := " "
		if s.AskedInMachines {
			mark = "+"
		}
		fmt.Fprintf(&b, "  %-16s %s  %s\n", s.Name, mark, s.About)
	}
	return b.String()
}

package report

import (
	"fmt"
	"slices"
	"strings"
)

// Column says what a column of a scenario's tables is: a phase, whose time is part of the
// case's, or a figure, which is something else that was measured while phases ran.
type Column struct {
	Scenario string
	// Name is that of the phase or figure; a "*" in it stands for any text.
	Name   string
	Figure bool
	Where  string // InProcess or InMachine; "" is both
	About  string
	Better Better // of a figure; of a phase it says only whether its time is Chosen
}

// Better is the direction in which a figure is better.
type Better int

// A figure is better the less it is, as times are, or the more. What was chosen, as the time is
// for which nobody does anything, is neither: no two runs are told by it.
const (
	Less Better = iota
	More
	Chosen
)

func (b Better) String() string { return []string{"less", "more", ""}[b] }

// chosen tells whether the time of a case is, or a part of it.
func (x *Result) chosen() bool {
	return slices.ContainsFunc(x.Phases, func(p Phase) bool {
		c := ColumnOf(x.Scenario, x.Where, p.Name, false)
		return c != nil && c.Better == Chosen
	})
}

// Columns are all phases and figures there are. A table's legend, the page, the comparison of
// two runs and docs/counters.md take them from here.
var Columns = []Column{
	{"probe", "probe", false, InProcess, "attach, reset and bring-up", Less},
	{"probe", "modprobe", false, InMachine, "nouveau and all that it needs are loaded, timed from outside", Less},
	{"probe", "guest's clock", true, InMachine, "what nouveau's initialization alone took, which probes the GPU, by the clock of the guest's kernel", Less},

	{"suspend", "save", false, InProcess, "instance memory is read out through BAR3, word by word", Less},
	{"suspend", "off", false, InProcess, "the driver shuts down", Less},
	{"suspend", "resume", false, InProcess, "reset, bring-up, and instance memory is written back", Less},
	{"suspend", "poweroff", false, InProcess, "the driver shuts down for good", Less},
	{"suspend", "poweroff", false, InMachine, "the guest is told to power off, until QEMU has ended; its driver saves what VRAM would lose", Less},
	{"suspend", "guest's clock", true, InMachine, "the same by the clock of the guest's kernel", Less},

	{"contexts", "create", false, InProcess, "all contexts are made, and each runs a submission", Less},
	{"contexts", "destroy", false, InProcess, "all are ended", Less},
	{"contexts", "contexts", false, InMachine, "all contexts are made and ended, timed from outside", Less},
	{"contexts", "create", true, InMachine, "making them all, each until its submission has run, by the guest's clock", Less},
	{"contexts", "destroy", true, InMachine, "ending them all, by the guest's clock", Less},

	{"copy", "to VRAM", false, InProcess, "all copies from the guest's memory to VRAM", Less},
	{"copy", "from VRAM", false, InProcess, "all copies back", Less},
	{"copy", "to VRAM", true, InProcess, "bytes a second of that phase", More},
	{"copy", "from VRAM", true, InProcess, "bytes a second of that phase", More},
	{"copy", "all ways", false, InMachine, "all that the guest's program does for this engine and size: copies from memory to memory, the GPU's and the guest's, and what it takes to check them", Less},
	{"copy", "* to *", true, InMachine, "bytes a second of copies from one memory to the other, several under way, by the guest's clock", More},

	{"program", "init", false, InProcess, "memory is allocated and mapped, and a channel is made", Less},
	{"program", "host-to-device", false, InProcess, "the data is copied from the guest's memory to VRAM", Less},
	{"program", "launch", false, InProcess, "the busy work is submitted and awaited", Less},
	{"program", "device-to-host", false, InProcess, "the data is copied back", Less},
	{"program", "close", false, InProcess, "channel, mappings and memory are given back", Less},

	{"storm", "submit", false, InProcess, "all submissions, until the last has been done", Less},
	{"storm", "storm", false, InMachine, "all submissions, until the last has been done", Less},
	{"storm", "submissions", true, "", "submissions a second", More},

	{"doorbell", "submit", false, InProcess, "all submissions, one at a time", Less},
	{"doorbell", "fences", false, InMachine, "all submissions, one at a time", Less},
	{"doorbell", "p50", true, "", "from the submission until the guest sees that it has been done: the median", Less},
	{"doorbell", "p99", true, "", "the same: 99 of 100 took no longer", Less},

	{Bells, "store", false, "", "GP_PUT is stored many times as it stands, so that nothing is submitted", Less},
	{Bells, "launch", false, "", "submissions one at a time, each awaited", Less},
	{Bells, "served", false, InProcess, "the same once more, while the guest sleeps between its looks at the semaphore and so leaves the processor to the server, whose time is measured", Less},
	{Bells, "behind", false, "", "submissions rung several (8) behind each other before they are awaited", Less},
	{Bells, BellStore, true, "", "one store of GP_PUT, for the guest: the median", Less},
	{Bells, "store p99", true, "", "the same: 99 of 100 took no longer", Less},
	{Bells, "server, a store", true, "", "processor time of the server for one such store", Less},
	{Bells, BellLaunch, true, "", "all that one submission takes the guest before it waits (in this process its stores, in a virtual machine the driver's call): the median", Less},
	{Bells, "launch p99", true, "", "the same: 99 of 100 took no longer", Less},
	{Bells, BellWork, true, "", "from the beginning of a submission until its semaphore is seen in memory: the median", Less},
	{Bells, "work p99", true, "", "the same: 99 of 100 took no longer", Less},
	{Bells, "server, a launch", true, "", "processor time of the server for one submission with its work", Less},
	{Bells, "wakes", true, "", "times for one submission that the server was woken by its socket, or looked for doorbells", Less},
	{Bells, "one of 8", true, "", "one of several submissions rung behind each other, its wait with it", Less},

	{"tables", "update", false, InProcess, "all entries are written, with the invalidates between them", Less},
	{"tables", "use", false, InProcess, "a submission that uses the address space", Less},
	{"tables", "entries", true, InProcess, "entries a second of the phase update", More},
	{"tables", "tables", false, InMachine, "buffers are mapped, used and unmapped, timed from outside", Less},
	{"tables", "map", true, InMachine, "mapping them all, by the guest's clock", Less},
	{"tables", "use", true, InMachine, "submissions that write through some of them, one at a time, by the guest's clock", Less},
	{"tables", "unmap", true, InMachine, "unmapping them all, by the guest's clock", Less},

	{"growth", "change", false, InProcess, "one of the changes: an entry is written, the TLB invalidated, and a submission uses the address space", Less},

	{"crowd", "together", false, InProcess, "all guests copy at the same time, until the last has done", Less},
	{"crowd", "all together", true, InProcess, "bytes a second of all guests' copies", More},
	{"crowd", "fairness", true, InProcess, "time of the first guest to finish by that of the last: 100 % is all at the same time", More},

	{"neighbour", "alone", false, InProcess, "one round of the guest's copies without a neighbour", Less},
	{"neighbour", "beside", false, InProcess, "one round beside an idle neighbour", Less},
	{"neighbour", "slowdown", true, InProcess, "how much longer the copies take beside it: pairs of rounds, each a value", Less},
	{"neighbour", "idle", false, "", "so long nobody has anything to do: chosen, not measured", Chosen},
	{"neighbour", "idle", true, "", "processor time of this process meanwhile, as a share of one processor", Less},

	{Accesses, "accesses", false, InMachine, "the guest's program does its loads and stores, and prepares and checks them", Less},
	{Accesses, "bar0-*", true, InMachine, "one access of that register by a program in the guest", Less},
	{Accesses, "bar1-*", true, InMachine, "one access of a word of VRAM through BAR1", Less},
	{Accesses, "ram-*", true, InMachine, "one access of a word of the guest's own memory", Less},
	{Accesses, "bandwidth", false, InMachine, "the same program moves blocks through windows, and in its own memory by turns: mostly as often as a chosen time allows", Chosen},
	{Accesses, "RAM *", true, InMachine, "bytes a second in the guest's own memory, by its processor", More},
	{Accesses, "BAR* read", true, InMachine, "bytes a second that the guest's processor reads through the window", More},
	{Accesses, "BAR* write", true, InMachine, "bytes a second that it writes through it", More},
	{Accesses, "BAR* / RAM", true, InMachine, "the same by what its own memory does in the same round", More},
}

// ColumnOf finds what is said of a phase or figure of a scenario that was measured there, nil
// if nothing is: a report may be of a program that knows more.
func ColumnOf(scenario, where, name string, figure bool) *Column {
	i := slices.IndexFunc(Columns, func(c Column) bool {
		return c.Scenario == scenario && c.Figure == figure && (c.Where == "" || c.Where == where) && stands(c.Name, name)
	})
	if i < 0 {
		return nil
	}
	return &Columns[i]
}

// stands tells whether a name is of a pattern, in which each "*" stands for any text.
func stands(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	for _, p := range parts[1:last] {
		if ok {
			_, rest, ok = strings.Cut(rest, p)
		}
	}
	return ok && strings.HasSuffix(rest, parts[last])
}

// Undescribed lists phases and figures of the report of which Columns say nothing.
func (r *Report) Undescribed() (out []string) {
	for i := range r.Results {
		x := &r.Results[i]
		for _, p := range x.Phases {
			if ColumnOf(x.Scenario, x.Where, p.Name, false) == nil {
				out = append(out, fmt.Sprintf("%s: phase %s", x.name(), p.Name))
			}
		}
		for _, f := range x.Figures {
			if ColumnOf(x.Scenario, x.Where, f.Name, true) == nil {
				out = append(out, fmt.Sprintf("%s: figure %s", x.name(), f.Name))
			}
		}
	}
	return out
}

// Explained is a name of a column, and what it is.
type Explained struct{ Name, About string }

// Explain says what phases or figures of a scenario are, for the legend of their table. Names
// of which the same is said stand together.
func Explain(scenario, where string, names []string, figures bool) (out []Explained) {
	var of []*Column
	for _, n := range names {
		c := ColumnOf(scenario, where, n, figures)
		switch k := slices.Index(of, c); {
		case c == nil:
		case k >= 0:
			out[k].Name += ", " + n
		default:
			of, out = append(of, c), append(out, Explained{n, c.About})
		}
	}
	return out
}

// ExplainCounts says what the columns of counts are that any of the results has, with those
// that are nothing but zeros or without: the page shows them, a terminal does not.
func (r *Report) ExplainCounts(zeros bool) (out []Explained) {
	for _, c := range Counts {
		if c.Column && slices.ContainsFunc(r.Results, func(x Result) bool { v, ok := x.Total.Counts[c.Name]; return ok && (zeros || v.Max > 0) }) {
			out = append(out, Explained{c.Title, c.About})
		}
	}
	return out
}

// legend writes what columns are, one a line.
func legend(b *strings.Builder, rows []Explained) {
	width := 0
	for _, e := range rows {
		width = max(width, len(e.Name))
	}
	for _, e := range rows {
		fmt.Fprintf(b, "    %-*s  %s\n", width, e.Name, e.About)
	}
}

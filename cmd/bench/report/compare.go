package report

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// difference is a field in which two runs are not alike, so that a ratio of their
// times would say nothing.
type difference struct {
	Field, Now, Then string
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s here, %s there", d.Field, d.Now, d.Then)
}

// Comparison of a run with one before it.
type Comparison struct {
	Rows    []Compared
	Refused []Refusal
	Missing []string // results that the run before has, and this one has not
}

// Compared is a case that both runs have, measured alike.
type Compared struct {
	Now, Then *Result
	// Values are the time, end to end, and each figure that both have.
	Values []ComparedValue
}

// Refusal says why no ratios are made, of how many results.
type Refusal struct {
	Why     []difference
	Results []string
}

// NoRatios says of how many results no ratio is made, and why: the first few reasons.
func (c *Comparison) NoRatios() (n int, why string) {
	reasons := c.reasons()
	for _, r := range c.Refused {
		n += len(r.Results)
	}
	if more := len(reasons) - 3; more > 0 {
		reasons = append(reasons[:3], fmt.Sprintf("and %d more", more))
	}
	return n, strings.Join(reasons, "; ")
}

// reasons are all there are for no ratio, each once.
func (c *Comparison) reasons() (out []string) {
	for _, r := range c.Refused {
		for _, d := range r.Why {
			if !slices.Contains(out, d.String()) {
				out = append(out, d.String())
			}
		}
	}
	return out
}

// ErrNotComparable says that two runs have nothing that can be compared.
var ErrNotComparable = errors.New("the runs are not comparable")

// Compare holds a run against one before it. Ratios are made only of what was
// measured alike: the machine, the emulator, the set-up's options and the
// parameters of the case. It fails with ErrNotComparable if nothing was.
func Compare(now, then *Report) (*Comparison, error) {
	c := new(Comparison)
	refused := map[string]int{}
	refuse := func(why []difference, name string) {
		key := fmt.Sprint(why)
		k, ok := refused[key]
		if !ok {
			k = len(c.Refused)
			refused[key] = k
			c.Refused = append(c.Refused, Refusal{Why: why})
		}
		c.Refused[k].Results = append(c.Refused[k].Results, name)
	}
	for i := range now.Results {
		x := &now.Results[i]
		name := x.name()
		y := then.Find(x.Where, x.Scenario, x.Case, x.Setup)
		why := now.differences(then, x, y)
		if len(why) == 0 {
			c.Rows = append(c.Rows, Compared{Now: x, Then: y, Values: values(x, y)})
			for _, f := range x.Figures {
				switch g := y.figure(f.Name); {
				case g == nil:
					refuse([]difference{{"figures", "measured", "not measured"}}, name+": "+f.Name)
				case g.Unit != f.Unit:
					refuse(differ(nil, "unit", f.Unit, g.Unit), name+": "+f.Name)
				}
			}
			for _, f := range y.Figures {
				if x.figure(f.Name) == nil {
					c.Missing = append(c.Missing, name+": "+f.Name)
				}
			}
			continue
		}
		refuse(why, name)
	}
	for i := range then.Results {
		if y := &then.Results[i]; now.Find(y.Where, y.Scenario, y.Case, y.Setup) == nil {
			c.Missing = append(c.Missing, y.name())
		}
	}
	if len(c.Rows) > 0 {
		return c, nil
	}
	reasons := c.reasons()
	if len(reasons) == 0 {
		reasons = []string{"this run has no results"}
	}
	return c, fmt.Errorf("%w: %s", ErrNotComparable, strings.Join(reasons, "; "))
}

// name says which result it is.
func (x *Result) name() string {
	return strings.Join([]string{x.Scenario, x.Case, x.Where, x.Setup}, ", ")
}

// differ appends the difference of two values, if there is one.
func differ(out []difference, field string, now, then any) []difference {
	if n, t := fmt.Sprint(now), fmt.Sprint(then); n != t {
		out = append(out, difference{field, orNone(n), orNone(t)})
	}
	return out
}

// machineDifferences are those of the machines.
func (r *Report) machineDifferences(then *Report) (out []difference) {
	m, o := &r.Machine, &then.Machine
	out = differ(out, "machine.processor", m.Processor, o.Processor)
	out = differ(out, "machine.processors", m.Processors, o.Processors)
	out = differ(out, "machine.memory_mib", m.MemoryMiB, o.MemoryMiB)
	return differ(out, "machine.kernel", m.Kernel, o.Kernel)
}

// differences between the runs that matter to result x, and between it and y.
func (r *Report) differences(then *Report, x, y *Result) []difference {
	out := r.machineDifferences(then)
	if x.Where == InMachine {
		var e, f Emulator
		if r.Emulator != nil {
			e = *r.Emulator
		}
		if then.Emulator != nil {
			f = *then.Emulator
		}
		out = differ(out, "emulator.qemu", e.QEMU, f.QEMU)
		out = differ(out, "emulator.accelerator", e.Accelerator, f.Accelerator)
	}
	if y == nil {
		return append(out, difference{"results", "measured", "not measured"})
	}
	out = differMaps(out, "options of "+x.Setup, r.setup(x.Setup).Options, then.setup(x.Setup).Options)
	return differMaps(out, "parameters", x.Parameters, y.Parameters)
}

func differMaps(out []difference, field string, now, then map[string]string) []difference {
	keys := map[string]string{}
	maps.Copy(keys, now)
	maps.Copy(keys, then)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		out = differ(out, field+"."+k, now[k], then[k])
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (r *Report) setup(name string) Setup {
	for _, s := range r.Setups {
		if s.Name == name {
			return s
		}
	}
	return Setup{}
}

// Text writes the comparison for a terminal.
func (c *Comparison) Text() string {
	var b strings.Builder
	b.WriteString("Against the other run: the time of each case, and its figures\n")
	for _, about := range AboutComparison {
		fmt.Fprintf(&b, "  %s\n", about)
	}
	b.WriteString("\n")
	g := grid{indent: "  ", left: 4, head: []string{"scenario", "case", "set-up", "what", "then", "now", "ratio", "difference", "better", "traps then", "now", "examined then", "now"}}
	for _, r := range c.Rows {
		name := r.Now.Scenario
		if r.Now.Where == InMachine {
			name += " (VM)"
		}
		for i, v := range r.Values {
			row := []string{"", "", "", v.Name, v.Then, v.Now, v.ShowRatio(), v.Verdict.String(), v.Better}
			if i == 0 {
				row[0], row[1], row[2] = name, r.Now.Case, r.Now.Setup
				for _, counts := range [][]string{{Reads, Writes}, {Examined}} {
					row = append(row, sumOf(r.Then.Total.Counts, counts), sumOf(r.Now.Total.Counts, counts))
				}
			}
			g.row(row...)
		}
	}
	g.write(&b)
	for _, r := range c.Refused {
		fmt.Fprintf(&b, "\nNot comparable, %s:\n", HowMany(len(r.Results), "result"))
		for _, d := range r.Why {
			fmt.Fprintf(&b, "  %v\n", d)
		}
		firstFew(&b, r.Results)
	}
	if n := len(c.Missing); n > 0 {
		fmt.Fprintf(&b, "\nMeasured there, not here, %s:\n", HowMany(n, "result"))
		firstFew(&b, c.Missing)
	}
	fmt.Fprintf(&b, "\n%s\n", c.Summary())
	return b.String()
}

// firstFew writes the first of some names, and how many more there are.
func firstFew(b *strings.Builder, names []string) {
	for i, n := range names {
		if i == 5 {
			fmt.Fprintf(b, "    and %d more\n", len(names)-i)
			break
		}
		fmt.Fprintf(b, "    %s\n", n)
	}
}

func sumOf(counts map[string]stats.Summary, names []string) string {
	sum := 0.0
	for _, n := range names {
		c, ok := counts[n]
		if !ok {
			return none
		}
		sum += c.Median
	}
	return ShowCount(sum)
}

// SameMachine fails with ErrNotComparable, and the fields, if times taken on one
// machine say nothing about the other.
func SameMachine(now, then Machine) error {
	var fields []string
	for _, d := range (&Report{Machine: now}).machineDifferences(&Report{Machine: then}) {
		fields = append(fields, d.String())
	}
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNotComparable, strings.Join(fields, "; "))
}

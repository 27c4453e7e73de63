package trace

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// covered counts, of all things of a group, those that a driver touched.
type covered struct {
	what, group string
	all         []string // names
	touched     map[string]bool
}

// Coverage writes how many registers of the chip of a GPU, methods and instructions a driver touched, by block and class.
// With missing it also names those that it did not.
func (f *File) Coverage(w io.Writer, gpu int, missing bool) error {
	groups, blockOf := f.registers(gpu)
	classes := make(map[uint16]*covered)
	for _, c := range engine.Classes() {
		g := &covered{what: "methods", group: fmt.Sprintf("%04x %s", c.ID, c.Name), touched: map[string]bool{}}
		for i := range c.Rows() {
			g.all = append(g.all, c.RowName(i))
		}
		classes[c.ID] = g
		groups = append(groups, g)
	}
	forms := &covered{what: "instructions", group: "sm_20", touched: map[string]bool{}}
	for _, form := range isa.Forms() {
		forms.all = append(forms.all, form.Syntax)
	}
	groups = append(groups, forms)
	of := pushbuffers{}
	for e := new(trace.Event); f.Next(e); {
		switch {
		case int(e.GPU) != gpu:
		case (e.Kind == trace.Read || e.Kind == trace.Write) && e.Unit == 0:
			if row := f.row(e); blockOf[row] != nil {
				blockOf[row].touched[row] = true
			}
		case e.Kind == trace.Code:
			if in, err := isa.Decode(e.Value, 0); err == nil {
				forms.touched[in.Form.Syntax] = true
			}
		default:
			_, calls := of.calls(f, e)
			for _, c := range calls {
				if class := engine.ClassOf(c.class); class != nil {
					name, _, _ := strings.Cut(class.MethodName(c.method), "(")
					classes[c.class].touched[name] = true
				}
			}
		}
	}
	if f.err != nil {
		return f.err
	}
	return writeCoverage(w, groups, missing)
}

// registers are the groups of the registers of a GPU's chip, and the group of each by its name.
func (f *File) registers(gpu int) (groups []*covered, of map[string]*covered) {
	of = make(map[string]*covered)
	for _, r := range f.spaces[gpu].Rows() {
		if len(groups) == 0 || groups[len(groups)-1].group != r.Block {
			groups = append(groups, &covered{what: "registers", group: r.Block, touched: map[string]bool{}})
		}
		g := groups[len(groups)-1]
		g.all, of[r.Reg.Name] = append(g.all, r.Reg.Name), g
	}
	return groups, of
}

func writeCoverage(to io.Writer, groups []*covered, missing bool) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "touched\tof all\t\t\n")
	touched, all := make(map[string]int), make(map[string]int)
	for _, g := range groups {
		names := slices.Compact(slices.Sorted(slices.Values(g.all)))
		n := 0
		var not []string
		for _, name := range names {
			if g.touched[name] {
				n++
			} else {
				not = append(not, name)
			}
		}
		touched[g.what], all[g.what] = touched[g.what]+n, all[g.what]+len(names)
		if n > 0 || missing {
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\n", n, len(names), g.what, g.group)
		}
		if missing && len(not) > 0 {
			w.Flush() // the names are no columns
			fmt.Fprintf(to, "    not: %s\n", strings.Join(not, "; "))
		}
	}
	for _, what := range []string{"registers", "methods", "instructions"} {
		fmt.Fprintf(w, "%d\t%d\t%s\tin all\n", touched[what], all[what], what)
	}
	return w.Flush()
}

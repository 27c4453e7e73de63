package serve

import (
	"cmp"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio"
)

// Registers is the register table, with the counts of endpoints summed up.
func Registers(of ...*Endpoint) (t api.RegisterTable, err error) {
	v, err := devmodel.New(devmodel.Config{}, 64<<20)
	if err != nil {
		return t, err
	}
	defer v.Close()
	for _, row := range v.Registers().Rows() {
		t.Rows = append(t.Rows, api.Register{
			Block: row.Block, Register: row.Reg.Name, Offset: row.Reg.Offset, Instances: row.Instances, Size: row.Aperture,
			Access: access(&row), Policy: row.Reg.Policy.String(), Stub: row.Reg.Stub, Effect: row.Reg.Effect,
		})
	}
	slices.SortFunc(t.Rows, func(a, b api.Register) int { return cmp.Compare(a.Offset, b.Offset) })
	at := make(map[string]*api.Register, len(t.Rows))
	for i := range t.Rows {
		at[t.Rows[i].Register] = &t.Rows[i]
	}
	for _, e := range of {
		t.GPUs = append(t.GPUs, e.Name)
		for _, c := range e.Device.Registers().Counts() {
			row := at[c.Name]
			row.Reads += c.Reads
			row.Writes += c.Writes
			row.Time += c.Time
		}
		for _, h := range e.Device.Registers().Missed().Holes {
			i := slices.IndexFunc(t.Undeclared, func(x mmio.Hole) bool { return x.Offset == h.Offset })
			if i < 0 {
				t.Undeclared = append(t.Undeclared, h)
				continue
			}
			t.Undeclared[i].Reads += h.Reads
			t.Undeclared[i].Writes += h.Writes
		}
	}
	return t, nil
}

// access names the access modes of a row: its own, and those of fields that differ.
func access(row *mmio.Row) string {
	if row.Aperture != 0 {
		return "window"
	}
	modes := []string{row.Reg.Access.String()}
	for _, f := range row.Reg.Fields {
		if m := f.Access.String(); !slices.Contains(modes, m) {
			modes = append(modes, m)
		}
	}
	return strings.Join(modes, "+")
}

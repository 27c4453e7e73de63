package serve

import (
	"cmp"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/mmio"
)

// Registers is the register table of the chips of endpoints, or of all if there are none. The counts of
// endpoints are summed up.
func Registers(of ...*Endpoint) (t api.RegisterTable, err error) {
	type row struct{ chip, register string }
	at := make(map[row]int)
	for _, chip := range Chips() {
		if len(of) > 0 && !slices.ContainsFunc(of, func(e *Endpoint) bool { return e.Config.Device.Name() == chip }) {
			continue
		}
		space, err := RegistersOf(chip)
		if err != nil {
			return t, err
		}
		rows := space.Rows()
		slices.SortFunc(rows, func(a, b mmio.Row) int { return cmp.Compare(a.Reg.Offset, b.Reg.Offset) })
		for _, r := range rows {
			at[row{chip, r.Reg.Name}] = len(t.Rows)
			t.Rows = append(t.Rows, api.Register{
				Chip: chip, Block: r.Block, Register: r.Reg.Name, Offset: r.Reg.Offset, Instances: r.Instances, Size: r.Aperture,
				Access: access(&r), Policy: r.Reg.Policy.String(), Stub: r.Reg.Stub, Effect: r.Reg.Effect,
			})
		}
	}
	for _, e := range of {
		t.GPUs = append(t.GPUs, e.Name)
		for _, c := range e.Device.Registers().Counts() {
			r := &t.Rows[at[row{e.Config.Device.Name(), c.Name}]]
			r.Reads += c.Reads
			r.Writes += c.Writes
			r.Time += c.Time
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

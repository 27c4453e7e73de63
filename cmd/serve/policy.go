package serve

import (
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio"
)

// PolicyRow is one row of the register table: what it is, what a guest of a
// shared card may do with it, and what guests did.
type PolicyRow struct {
	Block     string        `json:"block"`
	Register  string        `json:"register"`
	Offset    uint32        `json:"offset"`
	Instances int           `json:"instances"`
	Size      uint32        `json:"size,omitempty"` // in bytes, of an aperture
	Access    string        `json:"access"`
	Policy    string        `json:"policy"`
	Stub      bool          `json:"stub,omitempty"`
	Effect    string        `json:"effect,omitempty"`
	Reads     uint64        `json:"reads"`
	Writes    uint64        `json:"writes"`
	Time      time.Duration `json:"time_ns"` // an estimate, see mmio.RowCount
}

// PolicyTable is the whole register table.
type PolicyTable struct {
	GPUs []string    `json:"gpus,omitempty"` // whose counts these are, summed up
	Rows []PolicyRow `json:"rows"`
	// Unlisted are offsets that guests touched and no row declares: they are
	// storage of their own that nothing reads.
	Unlisted []mmio.Hole `json:"unlisted,omitempty"`
}

// NewPolicyTable is the table of a virtual GPU that nobody has touched.
func NewPolicyTable() (PolicyTable, error) {
	v, err := devmodel.New(devmodel.Config{}, 64<<20)
	if err != nil {
		return PolicyTable{}, err
	}
	defer v.Close()
	var t PolicyTable
	for _, row := range v.Registers().Rows() {
		t.Rows = append(t.Rows, PolicyRow{
			Block: row.Block, Register: row.Reg.Name, Offset: row.Reg.Offset, Instances: row.Instances, Size: row.Aperture,
			Access: access(&row), Policy: row.Reg.Policy.String(), Stub: row.Reg.Stub, Effect: row.Reg.Effect,
		})
	}
	slices.SortFunc(t.Rows, func(a, b PolicyRow) int { return int(int64(a.Offset) - int64(b.Offset)) })
	return t, nil
}

// access writes the modes of a row: its own, and those of fields that differ.
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

// Count adds what the seats' guests did.
func (t *PolicyTable) Count(seats ...*Endpoint) {
	at := make(map[string]int, len(t.Rows))
	for i := range t.Rows {
		at[t.Rows[i].Register] = i
	}
	holes := make(map[uint32]int)
	for _, s := range seats {
		t.GPUs = append(t.GPUs, s.Name)
		for _, c := range s.Registers().Counts() {
			row := &t.Rows[at[c.Name]]
			row.Reads += c.Reads
			row.Writes += c.Writes
			row.Time += c.Time
		}
		for _, h := range s.Registers().Missed().Holes {
			i, ok := holes[h.Offset]
			if !ok {
				holes[h.Offset] = len(t.Unlisted)
				t.Unlisted = append(t.Unlisted, h)
				continue
			}
			t.Unlisted[i].Reads += h.Reads
			t.Unlisted[i].Writes += h.Writes
		}
	}
}

package serve

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// traps counts the trapped accesses of each region.
type traps [vfiouser.NumRegions]struct{ reads, writes, bytes atomic.Uint64 }

var regionNames = [vfiouser.NumRegions]string{
	vfiouser.RegionBAR0: "BAR0", vfiouser.RegionBAR1: "BAR1", vfiouser.RegionBAR2: "BAR2",
	vfiouser.RegionBAR3: "BAR3", vfiouser.RegionBAR4: "BAR4", vfiouser.RegionBAR5: "BAR5",
	vfiouser.RegionROM: "ROM", vfiouser.RegionConfig: "configuration", vfiouser.RegionVGA: "VGA",
}

// Traps lists the regions that were accessed.
func (d *Device) Traps() (out []api.RegionCount) {
	for i := range d.traps {
		g := &d.traps[i]
		n := api.RegionCount{Region: regionNames[i], Reads: g.reads.Load(), Writes: g.writes.Load(), Bytes: g.bytes.Load()}
		if n.Reads+n.Writes > 0 {
			out = append(out, n)
		}
	}
	return out
}

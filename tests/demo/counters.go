package main

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/nouveau"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// movers are the classes that move bytes, by the name of an engine in a case of the
// guest's suites.
var movers = []struct {
	engine string
	class  uint16
	name   string
}{
	{"m2mf", nouveau.ClassM2MF, "M2MF"},
	{"ce0", nouveau.ClassCE0, "copy engine 0"},
	{"ce1", nouveau.ClassCE1, "copy engine 1"},
}

// counters are the card's own, at one moment or over a time.
type counters struct {
	moved, launches map[uint16]uint64 // by class

	doorbells, releases, acquireWaits uint64
	interrupts, nonStall, mmuFaults   uint64
}

func read(s *soft.Stats) counters {
	c := counters{
		moved: map[uint16]uint64{}, launches: map[uint16]uint64{},
		doorbells: s.Doorbells.Load(), releases: s.Releases.Load(), acquireWaits: s.AcquireWaits.Load(),
		interrupts: s.Interrupts.Load(), nonStall: s.NonStall.Load(), mmuFaults: s.MMUFaults.Load(),
	}
	for _, m := range movers {
		k := s.Engine.Class(m.class)
		c.moved[m.class], c.launches[m.class] = k.Bytes.Load(), k.Launches.Load()
	}
	return c
}

// since returns what was counted after before.
func (c counters) since(before counters) counters {
	d := counters{
		moved: map[uint16]uint64{}, launches: map[uint16]uint64{},
		doorbells: c.doorbells - before.doorbells, releases: c.releases - before.releases,
		acquireWaits: c.acquireWaits - before.acquireWaits,
		interrupts:   c.interrupts - before.interrupts, nonStall: c.nonStall - before.nonStall,
		mmuFaults: c.mmuFaults - before.mmuFaults,
	}
	for class := range c.moved {
		d.moved[class] = c.moved[class] - before.moved[class]
		d.launches[class] = c.launches[class] - before.launches[class]
	}
	return d
}

// counted is the card as a device, with its traps counted by region.
type counted struct {
	*serve.Device
	regions [vfiouser.NumRegions]struct{ reads, writes atomic.Uint64 }
}

func (d *counted) ReadRegion(index int, off uint64, p []byte) error {
	d.regions[index].reads.Add(1)
	return d.Device.ReadRegion(index, off, p)
}

func (d *counted) WriteRegion(index int, off uint64, p []byte) error {
	d.regions[index].writes.Add(1)
	return d.Device.WriteRegion(index, off, p)
}

var regionNames = [vfiouser.NumRegions]string{
	vfiouser.RegionBAR0: "BAR0, registers", vfiouser.RegionBAR1: "BAR1, doorbells and VRAM",
	vfiouser.RegionBAR3: "BAR3, instance memory", vfiouser.RegionBAR5: "BAR5, I/O ports",
	vfiouser.RegionConfig: "configuration space",
}

func (d *counted) traps() []traps {
	var out []traps
	for i := range d.regions {
		t := traps{Name: regionNames[i], Reads: d.regions[i].reads.Load(), Writes: d.regions[i].writes.Load()}
		if t.Reads+t.Writes > 0 {
			out = append(out, t)
		}
	}
	return out
}

var (
	_ vfiouser.Device      = (*counted)(nil)
	_ vfiouser.IRQObserver = (*counted)(nil)
)

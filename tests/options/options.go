// Package options lists the ways to share a card: how tables are shadowed, which windows clients map, and
// how guests take turns. Tests run random programs and attacks with them.
package options

import (
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// A Combination is one value of each option.
type Combination struct {
	Shadow    shadowpt.Policy
	Map       aperture.Map
	Scheduler string // as a user writes it
}

// Oracle traps everything, reads all tables at each invalidate, and submits immediately.
var Oracle = Combination{shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: shadowpt.ScanFull}, aperture.MapNone, config.SchedulerOff}

// Mapped maps everything and is the default otherwise, without a scheduler.
var Mapped = Combination{Map: aperture.MapAll, Scheduler: config.SchedulerOff}

func (c Combination) String() string {
	return fmt.Sprintf("%v %v %s %s", c.Shadow.Sync, c.Shadow.Scan, strings.ReplaceAll(c.Map.String(), ",", "+"), c.Scheduler)
}

// All lists every combination.
func All() (list []Combination) {
	for _, p := range shadowpt.Policies() {
		for m := aperture.MapNone; m <= aperture.MapAll; m++ {
			list = append(list, Combination{p, m, config.SchedulerOff})
			for _, s := range sched.Policies() {
				list = append(list, Combination{p, m, s})
			}
		}
	}
	return list
}

// Few lists some combinations that together have every pair of values.
func Few() (list []Combination) {
	const n, step = 21, 43 // found by trying
	all := All()
	for i := range n {
		list = append(list, all[i*step%len(all)])
	}
	return list
}

// Bare lists the combinations that need nothing optional of a card: all is trapped, and work
// is submitted immediately.
func Bare() (list []Combination) {
	for _, p := range shadowpt.Policies() {
		list = append(list, Combination{p, aperture.MapNone, config.SchedulerOff})
	}
	return list
}

// Find returns the combination with that text.
func Find(name string) (Combination, error) {
	for _, c := range All() {
		if c.String() == name {
			return c, nil
		}
	}
	return Oracle, fmt.Errorf("no combination %q; one is %q", name, Oracle)
}

// config is a card with one GPU of that name.
func (c Combination) config(name string) (*config.Config, error) {
	cfg := config.Default()
	cfg.Scheduler.Policy = c.Scheduler
	text := fmt.Sprintf("name=%s,socket=%s.sock,vram=64MiB,shadow.sync=%v,shadow.scan=%v,bar-map=%v", name, name, c.Shadow.Sync, c.Shadow.Scan, c.Map)
	if err := cfg.AddGPU("--gpu", text); err != nil {
		return nil, err
	}
	return cfg, cfg.Check()
}

// Limits returns the limits and the scheduler of a card for such GPUs.
func (c Combination) Limits() (aggregator.Options, error) {
	l, err := c.config("a")
	if err != nil {
		return aggregator.Options{}, err
	}
	return serve.LimitsOf(l)
}

// GPU returns such a GPU with vram bytes, and the rest in proportion.
func (c Combination) GPU(name string, vram uint64) (serve.GPUConfig, error) {
	l, err := c.config(name)
	if err != nil {
		return serve.GPUConfig{}, err
	}
	g, err := serve.GPUOf(&l.GPUs[0])
	s := &g.Share
	s.VRAM, s.Tables, s.Channels, s.Guaranteed = vram, 0, 0, 0
	return g, err
}

// Maps reports whether clients map anything, and so wait for each write.
func (c Combination) Maps() bool { return c.Map != aperture.MapNone }

// Windows reports whether clients map windows into VRAM, so that pages move.
func (c Combination) Windows() bool { return c.Map&^aperture.MapROM != 0 }

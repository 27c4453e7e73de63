// Package options lists the ways to share a card: each value of each option of shadowing,
// mapping and scheduling.
//
// [Axes] lists the options. [All] has every combination that package config accepts;
// [Pairs] is a small part of it that has every pair of values. The tests run random
// programs with them.
package options

import (
	"fmt"
	"strings"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// An Axis is an option with its values, or one part of a list with "" for its
// absence.
type Axis struct {
	Key   string // of a GPU, or of the card's scheduler
	Words []string
}

const (
	mapKey       = "bar-map"
	schedulerKey = "scheduler.policy"
)

// Axes are the options. The first words of all together are the plainest set-up.
var Axes = [...]Axis{
	{"shadow.sync", []string{"flush", "lazy", "eager"}},
	{"shadow.scan", []string{"full", "incremental"}},
	{mapKey, part(aperture.MapBAR1)},
	{mapKey, part(aperture.MapBAR3)},
	{mapKey, part(aperture.MapPRAMIN)},
	{mapKey, part(aperture.MapROM)},
	{schedulerKey, schedulers()},
}

func part(m aperture.Map) []string { return []string{"", m.String()} }

func schedulers() []string {
	words := []string{config.SchedulerOff}
	for p := sched.None; p <= sched.DFQ; p++ {
		words = append(words, p.String())
	}
	return words
}

// A Combination is one value of each option, as its index.
type Combination [len(Axes)]int

// Oracle traps everything, reads all tables at each invalidate, and submits immediately.
var Oracle Combination

// texts returns the combination's options as a user would write them, by key.
func (c Combination) texts() (keys []string, of map[string]string) {
	of = make(map[string]string)
	for i, a := range Axes {
		was, ok := of[a.Key]
		if !ok {
			keys = append(keys, a.Key)
		}
		of[a.Key] = strings.Trim(was+","+a.Words[c[i]], ",")
	}
	if of[mapKey] == "" {
		of[mapKey] = aperture.MapNone.String()
	}
	return keys, of
}

func (c Combination) String() string {
	keys, of := c.texts()
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = strings.ReplaceAll(of[k], ",", "+")
	}
	return strings.Join(words, " ")
}

// Config returns the configuration of a card with one GPU of that name.
func (c Combination) Config(name string) (*config.Config, error) {
	cfg := config.Default()
	text := fmt.Sprintf("name=%s,socket=%s.sock,vram=%v", name, name, config.Size(64<<20))
	keys, of := c.texts()
	for _, k := range keys {
		if k == schedulerKey {
			cfg.Scheduler.Policy = of[k]
		} else {
			text += fmt.Sprintf(",%s=%s", k, of[k])
		}
	}
	if err := cfg.AddGPU("--gpu", text); err != nil {
		return nil, err
	}
	return cfg, cfg.Check()
}

// All lists every combination that package config accepts, the last option
// changing fastest.
var All = sync.OnceValue(func() (list []Combination) {
	var c Combination
	for i := len(c); i >= 0; {
		if i == len(c) {
			if _, err := c.Config("a"); err == nil {
				list = append(list, c)
			}
		}
		if i--; i < 0 {
			break
		}
		if c[i]++; c[i] < len(Axes[i].Words) {
			i = len(c)
		} else {
			c[i] = 0
		}
	}
	return list
})

// Find returns the combination with that text.
func Find(name string) (Combination, error) {
	for _, c := range All() {
		if c.String() == name {
			return c, nil
		}
	}
	return Oracle, fmt.Errorf("no combination %q; one is %q", name, Oracle)
}

// Bare lists the combinations that need nothing optional of a card: all is trapped, and work
// is submitted immediately.
func Bare() (list []Combination) {
	for _, c := range All() {
		if _, of := c.texts(); !c.Maps() && of[schedulerKey] == config.SchedulerOff {
			list = append(list, c)
		}
	}
	return list
}

// Limits returns the limits and the scheduler of a card for such GPUs.
func (c Combination) Limits() (aggregator.Options, error) {
	l, err := c.Config("a")
	if err != nil {
		return aggregator.Options{}, err
	}
	return serve.LimitsOf(l)
}

// GPU returns such a GPU with vram bytes, and the rest in proportion.
func (c Combination) GPU(name string, vram uint64) (serve.GPUConfig, error) {
	l, err := c.Config(name)
	if err != nil {
		return serve.GPUConfig{}, err
	}
	g, err := serve.GPUOf(&l.GPUs[0])
	s := &g.Share
	s.VRAM, s.Tables, s.Channels, s.Guaranteed = vram, 0, 0, 0
	return g, err
}

func (c Combination) maps() aperture.Map {
	_, of := c.texts()
	m, _ := aperture.ParseMap(of[mapKey])
	return m
}

// Maps reports whether clients map anything, and so wait for each write.
func (c Combination) Maps() bool { return c.maps() != aperture.MapNone }

// Windows reports whether clients map windows into VRAM, so that pages move.
func (c Combination) Windows() bool { return c.maps()&^aperture.MapROM != 0 }

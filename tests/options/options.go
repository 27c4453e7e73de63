package options

import (
	"fmt"
	"strings"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/parts"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// An Axis is an option and what it can be, or a part of one that there is or not.
type Axis struct {
	Key   string // of a GPU, or of the card's scheduler
	Words []string
}

const (
	mapKey       = "bar-map"
	doorbellKey  = "doorbell"
	schedulerKey = "scheduler.policy"
)

// Axes are the options. The first words of all are the plainest set-up there is.
var Axes = [...]Axis{
	{"shadow.sync", []string{"flush", "lazy", "eager"}},
	{"shadow.scan", []string{"full", "incremental"}},
	{mapKey, part(homes.MapBAR1)},
	{mapKey, part(homes.MapBAR3)},
	{mapKey, part(homes.MapPRAMIN)},
	{mapKey, part(homes.MapROM)},
	{doorbellKey, doorbell.Modes[:]},
	{schedulerKey, schedulers()},
}

func part(m homes.Map) []string { return []string{"", m.String()} }

func schedulers() []string {
	words := []string{config.SchedulerOff}
	for p := sched.None; p <= sched.DFQ; p++ {
		words = append(words, p.String())
	}
	return words
}

// A Combination is one value of each option, as its index.
type Combination [len(Axes)]int

// Oracle is the combination with nothing clever in it: all is trapped, all tables
// are read at each invalidate, work goes to the card as it comes.
var Oracle Combination

// Word is what the combination has of axis i.
func (c Combination) Word(i int) string { return Axes[i].Words[c[i]] }

// texts are the combination's options as a user would write them, by key.
func (c Combination) texts() (keys []string, of map[string]string) {
	of = make(map[string]string)
	for i, a := range Axes {
		was, ok := of[a.Key]
		if !ok {
			keys = append(keys, a.Key)
		}
		of[a.Key] = strings.Trim(was+","+c.Word(i), ",")
	}
	if of[mapKey] == "" {
		of[mapKey] = homes.MapNone.String()
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

// Layer is the configuration of a card with one GPU of that name, if that can be.
func (c Combination) Layer(name string) (config.Layer, error) {
	var cfg config.Config
	text := fmt.Sprintf("name=%s,socket=%s.sock,vram=%v", name, name, leastVRAM)
	keys, of := c.texts()
	for _, k := range keys {
		if k == schedulerKey {
			cfg.Scheduler.Policy = of[k]
		} else {
			text += fmt.Sprintf(",%s=%s", k, of[k])
		}
	}
	g, err := config.ParseGPU("--gpu", text)
	if err != nil {
		return config.Layer{}, err
	}
	cfg.GPUs = append(cfg.GPUs, g)
	return config.Join(config.Defaults(), config.Flags(cfg, []string{"sched-policy"}))
}

// leastVRAM is the least that a GPU can have.
const leastVRAM config.Size = 64 << 20

// All lists every combination that is possible: that package config does not refuse.
var All = sync.OnceValue(func() (list []Combination) {
	for c := range product() {
		if _, err := c.Layer("a"); err == nil {
			list = append(list, c)
		}
	}
	return list
})

// product yields every combination, the last option changing fastest.
func product() func(yield func(Combination) bool) {
	return func(yield func(Combination) bool) {
		var c Combination
		for {
			if !yield(c) {
				return
			}
			i := len(c) - 1
			for ; i >= 0; i-- {
				if c[i]++; c[i] < len(Axes[i].Words) {
					break
				}
				c[i] = 0
			}
			if i < 0 {
				return
			}
		}
	}
}

// Limits are the limits of a card whose GPUs are of such a kind, and its scheduler.
func (c Combination) Limits() (aggregator.Options, error) {
	l, err := c.Layer("a")
	if err != nil {
		return aggregator.Options{}, err
	}
	return parts.Limits(&l)
}

// GPU is a GPU of such a kind, with vram bytes and what follows from that.
func (c Combination) GPU(name string, vram uint64) (serve.GPUConfig, error) {
	l, err := c.Layer(name)
	if err != nil {
		return serve.GPUConfig{}, err
	}
	g, err := parts.GPU(&l.Config.GPUs[0])
	s := &g.Share
	s.VRAM, s.Tables, s.Channels, s.Guaranteed = vram, 0, 0, 0
	return g, err
}

// maps is what of its BARs clients map.
func (c Combination) maps() homes.Map {
	_, of := c.texts()
	m, _ := homes.ParseMap(of[mapKey])
	return m
}

// Maps reports whether clients map anything, and so wait for each write.
func (c Combination) Maps() bool { return c.maps() != homes.MapNone || c.Polled() }

// Windows reports whether they map windows on memory, so that pages move.
func (c Combination) Windows() bool { return c.maps()&^homes.MapROM != 0 || c.Polled() }

// Polled reports whether doorbells are looked for.
func (c Combination) Polled() bool {
	_, of := c.texts()
	return of[doorbellKey] == doorbell.Poll.String()
}

// Find returns the combination that is called so.
func Find(name string) (Combination, error) {
	for _, c := range All() {
		if c.String() == name {
			return c, nil
		}
	}
	return Oracle, fmt.Errorf("no combination %q; one is %q, another %q", name, Oracle, All()[len(All())-1])
}

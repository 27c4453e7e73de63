package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Options are how a user describes a plan.
type Options struct {
	Preset   string
	File     string
	Guests   []string
	Policies []string
	Set      []string
	Duration time.Duration
	Seed     uint64
}

// Settings lists the keys of --set: those of the scheduler in umbra serve's file, and of
// umbra sched set, but for the policy.
func Settings() []string {
	keys := new(config.Schedule).Keys()
	return slices.DeleteFunc(keys, func(key string) bool { return key == "policy" })
}

// Defaults of a plan.
const (
	DefaultPreset   = "nn"
	DefaultDuration = 20 * time.Second
	MaxDuration     = time.Hour

	// DefaultSweep is what each run of a sweep may take; one is over when its program is done.
	DefaultSweep = 1000 * time.Second
)

// Plan makes the plan, or says what of the options cannot be.
func (o *Options) Plan() (*Plan, error) {
	p := &Plan{Name: o.Preset, Duration: o.Duration, Seed: o.Seed}
	var f file
	given := 0
	for _, g := range []bool{o.Preset != "", o.File != "", len(o.Guests) > 0} {
		if g {
			given++
		}
	}
	if given > 1 {
		return nil, &config.Error{Where: "--preset, --mix and --guest", Value: "more than one of them", Reason: "give one way to say who uses the card"}
	}
	switch {
	case o.File != "":
		read, err := readFile(o.File)
		if err != nil {
			return nil, err
		}
		f = *read
		p.Name, p.About, p.Mix = f.Name, f.About, f.mix()
		if p.Name == "" {
			p.Name = o.File
		}
	case len(o.Guests) > 0:
		p.Name = "guests"
		for _, text := range o.Guests {
			n, err := parseGuest(text)
			if err != nil {
				return nil, err
			}
			p.Mix.Guests = append(p.Mix.Guests, n)
		}
	default:
		if p.Name == "" {
			p.Name = DefaultPreset
		}
		var names []string
		for _, preset := range Presets() {
			names = append(names, preset.Name)
			if preset.Name == p.Name {
				p.About, p.Mix, p.Sweep = preset.About, preset.Mix, preset.Sweep
			}
		}
		if p.About == "" {
			return nil, &config.Error{Where: "--preset", Value: p.Name, Reason: config.Known(p.Name, names)}
		}
	}
	if p.Duration == 0 {
		p.Duration = f.Duration
	}
	if p.Duration == 0 {
		p.Duration = DefaultDuration
		if p.Sweep != nil {
			p.Duration = DefaultSweep
		}
	}
	if p.Duration < windows*time.Millisecond || p.Duration > MaxDuration {
		where := "--duration"
		if o.Duration == 0 {
			where = f.where.of("duration")
		}
		return nil, &config.Error{Where: where, Value: p.Duration.String(), Reason: fmt.Sprintf("must be %v to %v", windows*time.Millisecond, MaxDuration)}
	}
	if p.Seed == 0 {
		p.Seed = max(f.Seed, 1)
	}
	if n := requests(&p.Mix, p.Duration); p.Sweep == nil && n > maxRequests {
		return nil, &config.Error{Where: "--duration", Value: p.Duration.String(),
			Reason: fmt.Sprintf("may come to %.0f million requests with each policy; at most %d million: simulate %v or less, or longer requests", n/1e6, maxRequests/1_000_000, time.Duration(float64(p.Duration)*maxRequests/n).Truncate(time.Second))}
	}
	var err error
	if p.Variants, err = o.variants(&f); err != nil {
		return nil, err
	}
	if err := p.fitSweep(); err != nil {
		return nil, err
	}
	at := func(field string) string { return "--guest: " + field }
	if o.File != "" {
		at = f.where.of
	}
	if p.Sweep == nil {
		// The rig checks the rest; a mistake is told before anything runs.
		if _, err = model.NewRig(p.Variants[0].Config, p.Mix, p.Seed); err != nil {
			return nil, named(at, err)
		}
	}
	return p, nil
}

// inSet is a setting's field as --set has it.
func inSet(field string) string { return "--set " + field }

// named says in whose words an error of the scheduler's is.
func named(at func(field string) string, err error) error {
	if e := new(sched.Error); errors.As(err, &e) {
		return &config.Error{Where: at(e.Field), Value: e.Value, Reason: e.Reason}
	}
	return err
}

// twice refuses a name that a list has twice.
func twice(where string, list []string) error {
	for i, name := range list {
		if slices.Contains(list[:i], name) {
			return &config.Error{Where: where, Value: name, Reason: "there twice; name each once"}
		}
	}
	return nil
}

// variants are all policies.
func (o *Options) variants(f *file) (out []Variant, err error) {
	defaults := config.Defaults()
	schedule := defaults.Config.Schedule()
	schedule.Policy = sched.Default().Policy.String()
	set := func(where, key, value string) error {
		if !slices.Contains(Settings(), key) {
			return &config.Error{Where: where + key, Reason: "unknown setting; " + config.Known(key, Settings())}
		}
		err := schedule.Put(key, value)
		if wrong := new(config.Error); errors.As(err, &wrong) {
			wrong.Where = where + wrong.Where
		}
		return err
	}
	for _, key := range Settings() { // in a fixed order
		if value, ok := f.Set[key]; ok {
			if err := set(f.where.of("set")+": ", key, value); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.Set)) {
		if !slices.Contains(Settings(), key) {
			return nil, set(f.where.of("set")+": ", key, f.Set[key])
		}
	}
	for _, s := range o.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, &config.Error{Where: "--set", Value: s, Reason: "not a key and a value; write credit.period=10ms"}
		}
		if err := set("--set ", key, value); err != nil {
			return nil, err
		}
	}
	base, err := schedule.Config()
	if err != nil {
		return nil, named(inSet, err)
	}
	policies := o.Policies
	if len(policies) == 0 {
		policies = f.Policies
	}
	if len(policies) == 0 {
		policies = sched.Policies()
	}
	listed := "--policy"
	if len(o.Policies) == 0 {
		listed = f.where.of("policies")
	}
	if err := twice(listed, policies); err != nil {
		return nil, err
	}
	for _, p := range policies {
		v := Variant{Name: p, Config: *base}
		if err := v.Config.Policy.UnmarshalText([]byte(p)); err != nil {
			return nil, &config.Error{Where: listed, Value: p, Reason: config.Known(p, sched.Policies())}
		}
		if err := v.Config.Check(); err != nil {
			return nil, named(inSet, err)
		}
		out = append(out, v)
	}
	return out, nil
}

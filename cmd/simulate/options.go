package simulate

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Options are how a user describes a plan.
type Options struct {
	Preset      string
	File        string
	Guests      []string
	Policies    []string
	Hierarchies []string
	Set         []string
	Duration    time.Duration
	Seed        uint64
}

// Settings lists the keys of --set: those of the scheduler in umbra serve's file, and of
// umbra sched set, but for the policy and the hierarchy, of which there are several.
func Settings() []string {
	keys := new(config.Schedule).Keys()
	return slices.DeleteFunc(keys, func(key string) bool { return key == "policy" || key == "hierarchy" })
}

// put writes a value into what p points to.
func put(p any, text string) (err error) {
	switch p := p.(type) {
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	case *bool:
		if *p, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case *time.Duration:
		if *p, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("%q is not a time; write a number and a unit: 500us, 30ms, 1s", text)
		}
	case *string:
		*p = text
	case *sched.Policy:
		return p.UnmarshalText([]byte(text))
	}
	return nil
}

// guestKeys are what --guest can say.
var guestKeys = []struct {
	key string
	at  func(*model.Node, *throttle.Load) any
}{
	{"name", func(n *model.Node, _ *throttle.Load) any { return &n.Name }},
	{"weight", func(n *model.Node, _ *throttle.Load) any { return &n.Weight }},
	{"cap", func(n *model.Node, _ *throttle.Load) any { return &n.Cap }},
	{"priority", func(n *model.Node, _ *throttle.Load) any { return &n.Priority }},
	{"policy", func(n *model.Node, _ *throttle.Load) any { return &n.Policy }},
	{"busy", func(_ *model.Node, l *throttle.Load) any { return &l.Busy }},
	{"busy-most", func(_ *model.Node, l *throttle.Load) any { return &l.BusyMost }},
	{"think", func(_ *model.Node, l *throttle.Load) any { return &l.Think }},
	{"burst", func(_ *model.Node, l *throttle.Load) any { return &l.Burst }},
	{"ahead", func(_ *model.Node, l *throttle.Load) any { return &l.Ahead }},
	{"copies", func(_ *model.Node, l *throttle.Load) any { return &l.Copies }},
	{"copy-busy", func(_ *model.Node, l *throttle.Load) any { return &l.CopyBusy }},
	{"requests", func(_ *model.Node, l *throttle.Load) any { return &l.Requests }},
	{"start", func(_ *model.Node, l *throttle.Load) any { return &l.Start }},
	{"stop", func(_ *model.Node, l *throttle.Load) any { return &l.Stop }},
	{"life", func(_ *model.Node, l *throttle.Load) any { return &l.Life }},
	{"alone", func(_ *model.Node, l *throttle.Load) any { return &l.Alone }},
}

// parseGuest reads a guest written as keys and values. With processes=N it has so
// many processes with the load.
func parseGuest(text string) (model.Node, error) {
	var n model.Node
	var l throttle.Load
	processes := 0
	known := []string{"processes"}
	for _, k := range guestKeys {
		known = append(known, k.key)
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			return n, &config.Error{Where: "--guest", Value: text, Reason: "not keys and values; write name=a,busy=2ms,weight=200"}
		}
		var at any
		if key == "processes" {
			at = &processes
		}
		for _, k := range guestKeys {
			if k.key == key {
				at = k.at(&n, &l)
			}
		}
		if at == nil {
			return n, &config.Error{Where: "--guest: " + key, Reason: "unknown key; " + config.Known(key, known)}
		}
		if err := put(at, value); err != nil {
			return n, &config.Error{Where: "--guest: " + key, Reason: err.Error()}
		}
	}
	if processes == 0 {
		n.Load = &l
	} else {
		n.Nodes = []model.Node{{Name: "p", Count: processes, Load: &l}}
	}
	return n, nil
}

// file is a plan as a YAML file has it.
type file struct {
	Name     string            `yaml:"name"`
	About    string            `yaml:"about"`
	Duration time.Duration     `yaml:"duration"`
	Seed     uint64            `yaml:"seed"`
	Set      map[string]string `yaml:"set"`
	Policies []string          `yaml:"policies"`
	Guests   []model.Node      `yaml:"guests"`
}

// maxFile bounds a file, so that a wrong path is not read whole.
const maxFile = 1 << 20

func readFile(name string) (*file, error) {
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxFile {
		return nil, &config.Error{Where: name, Reason: fmt.Sprintf("%d bytes; the description of a mix has at most %d", info.Size(), maxFile)}
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, &config.Error{Where: "--mix", Value: name, Reason: path.Err.Error()}
	}
	if err != nil {
		return nil, err
	}
	f := new(file)
	if err := yaml.UnmarshalWithOptions(data, f, yaml.Strict()); err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return nil, &config.Error{Where: fmt.Sprintf("%s:%d", name, y.GetToken().Position.Line), Reason: y.GetMessage()}
		}
		return nil, &config.Error{Where: name, Reason: err.Error()}
	}
	return f, nil
}

// Defaults of a plan.
const (
	DefaultPreset   = "nn"
	DefaultDuration = 20 * time.Second
	MaxDuration     = time.Hour
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
		p.Name, p.About, p.Mix = f.Name, f.About, model.Mix{Guests: f.Guests}
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
	}
	if p.Duration < windows*time.Millisecond || p.Duration > MaxDuration {
		return nil, &config.Error{Where: "--duration", Value: p.Duration.String(), Reason: fmt.Sprintf("must be %v to %v", windows*time.Millisecond, MaxDuration)}
	}
	if p.Seed == 0 {
		p.Seed = max(f.Seed, 1)
	}
	var err error
	if p.Variants, err = o.variants(&f); err != nil {
		return nil, err
	}
	where := "--guest: "
	if o.File != "" {
		where = o.File + ": "
	}
	if p.Sweep == nil {
		// The rig checks the rest; a mistake is told before anything runs.
		if _, err = model.NewRig(p.Variants[0].Config, p.Mix, p.Seed); err != nil {
			return nil, named(where, err)
		}
	}
	return p, nil
}

// named says in whose words an error of the scheduler's is.
func named(where string, err error) error {
	if e := new(sched.Error); errors.As(err, &e) {
		return &config.Error{Where: where + e.Field, Value: e.Value, Reason: e.Reason}
	}
	return err
}

// variants are all policies in all hierarchies.
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
			if err := set("set: ", key, value); err != nil {
				return nil, err
			}
			delete(f.Set, key)
		}
	}
	for key, value := range f.Set {
		return nil, set("set: ", key, value)
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
		return nil, named("--set ", err)
	}
	policies := o.Policies
	if len(policies) == 0 {
		policies = f.Policies
	}
	if len(policies) == 0 {
		policies = sched.Policies()
	}
	hierarchies := o.Hierarchies
	if len(hierarchies) == 0 {
		hierarchies = []string{sched.Tree.String()}
	}
	for _, p := range policies {
		for _, h := range hierarchies {
			v := Variant{Name: p, Config: *base}
			if !slices.Contains(sched.Policies(), p) {
				return nil, &config.Error{Where: "--policy", Value: p, Reason: config.Known(p, sched.Policies())}
			}
			if !slices.Contains(sched.Hierarchies(), h) {
				return nil, &config.Error{Where: "--hierarchy", Value: h, Reason: config.Known(h, sched.Hierarchies())}
			}
			if err := errors.Join(v.Config.Policy.UnmarshalText([]byte(p)), v.Config.Hierarchy.UnmarshalText([]byte(h))); err != nil {
				return nil, err
			}
			if len(hierarchies) > 1 {
				v.Name += ", " + h
			}
			if err := v.Config.Check(); err != nil {
				return nil, named("--set ", err)
			}
			out = append(out, v)
		}
	}
	return out, nil
}

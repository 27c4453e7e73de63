package simulate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
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

// Defaults of a plan.
const (
	DefaultPreset   = "nn"
	DefaultDuration = 20 * time.Second
	DefaultSweep    = 1000 * time.Second // a run of a sweep is over when its program has ended
	MaxDuration     = time.Hour
)

// file is a plan as YAML.
type file struct {
	Name     string            `yaml:"name"`
	About    string            `yaml:"about"`
	Duration time.Duration     `yaml:"duration"`
	Seed     uint64            `yaml:"seed"`
	Set      map[string]string `yaml:"set"`
	Policies []string          `yaml:"policies"`
	Guests   []model.Node      `yaml:"guests"`
}

// Plan makes the plan, or says what is wrong with the options.
func (o *Options) Plan() (*Plan, error) {
	f, p, where, err := o.source()
	if err != nil {
		return nil, err
	}
	p.Duration, p.Seed = o.Duration, max(o.Seed, f.Seed, 1)
	if o.Seed != 0 {
		p.Seed = o.Seed
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
		return nil, &config.Error{Where: "--duration", Value: p.Duration.String(), Reason: fmt.Sprintf("must be %v to %v", windows*time.Millisecond, MaxDuration)}
	}
	if p.Configs, err = o.configs(f); err != nil {
		return nil, err
	}
	if p.Sweep == nil { // a mistake is reported before anything runs
		if _, err := model.NewRig(p.Configs[0], p.Mix, p.Seed); err != nil {
			return nil, where(err)
		}
	}
	return p, nil
}

// source finds out who uses the card: from a preset, a file or flags. Where names the place of
// an error.
func (o *Options) source() (f *file, p *Plan, where func(error) error, err error) {
	f = new(file)
	switch {
	case o.Preset != "" && o.File != "" || o.Preset != "" && len(o.Guests) > 0 || o.File != "" && len(o.Guests) > 0:
		return nil, nil, nil, &config.Error{Where: "--preset, --mix and --guest", Value: "more than one of them", Reason: "give one"}
	case o.File != "":
		data, err := config.ReadInput(o.File)
		if err != nil {
			return nil, nil, nil, &config.Error{Where: "--mix", Value: o.File, Reason: err.Error()}
		}
		if f, err = parse(o.File, data); err != nil {
			return nil, nil, nil, err
		}
		where = func(err error) error { return located(o.File, data, err) }
		p = &Plan{Name: f.Name, About: f.About, Mix: model.Mix{Guests: f.Guests}}
		if p.Name == "" {
			p.Name = o.File
		}
	case len(o.Guests) > 0:
		p = &Plan{Name: "guests"}
		for _, text := range o.Guests {
			n, err := parseGuest(text)
			if err != nil {
				return nil, nil, nil, err
			}
			p.Mix.Guests = append(p.Mix.Guests, *n)
		}
		where = func(err error) error { return named("--guest: ", err) }
	default:
		name := o.Preset
		if name == "" {
			name = DefaultPreset
		}
		presets := Presets()
		i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
		if i < 0 {
			var names []string
			for _, p := range presets {
				names = append(names, p.Name)
			}
			return nil, nil, nil, &config.Error{Where: "--preset", Value: name, Reason: config.Known(name, names)}
		}
		return f, &Plan{Name: name, About: presets[i].About, Mix: presets[i].Mix, Sweep: presets[i].Sweep}, nil, nil
	}
	return f, p, where, where(scaleCaps(p.Mix.Guests, "guests"))
}

// parse reads YAML. The name is for errors.
func parse(name string, data []byte) (*file, error) {
	f := new(file)
	if err := yaml.UnmarshalWithOptions(data, f, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return nil, config.YAMLError(name, err)
	}
	return f, nil
}

// located names the file and, if the error has a path, the line.
func located(name string, data []byte, err error) error {
	e := new(sched.Error)
	if !errors.As(err, &e) {
		return err
	}
	where := name
	if tree, parseErr := parser.ParseBytes(data, 0); parseErr == nil {
		for path := e.Field; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] { // or the line of what it is in
			if p, pathErr := yaml.PathString("$." + path); pathErr == nil {
				if node, pathErr := p.FilterFile(tree); pathErr == nil && node != nil {
					where = fmt.Sprintf("%s:%d", name, node.GetToken().Position.Line)
					break
				}
			}
		}
	}
	return named(where+": ", err)
}

// named puts a place before the field of a scheduler's error.
func named(where string, err error) error {
	if e := new(sched.Error); errors.As(err, &e) {
		return &config.Error{Where: where + e.Field, Value: e.Value, Reason: e.Reason}
	}
	return err
}

// scaleCaps turns percent, as users write caps, into the scheduler's thousandths.
func scaleCaps(nodes []model.Node, at string) error {
	for i := range nodes {
		n := &nodes[i]
		if n.Cap < 0 || n.Cap > 100 {
			return &sched.Error{Field: fmt.Sprintf("%s[%d].cap", at, i), Value: fmt.Sprint(n.Cap), Reason: "must be 0 to 100 percent"}
		}
		n.Cap *= sched.FullCap / 100
		if err := scaleCaps(n.Nodes, fmt.Sprintf("%s[%d].processes", at, i)); err != nil {
			return err
		}
	}
	return nil
}

// guestText is a guest as keys and values: so many processes with one load.
type guestText struct {
	Name      string         `yaml:"name" placeholder:"NAME" help:"Name of the guest."`
	Weight    int            `yaml:"weight" validate:"min=1,max=10000" help:"Share of the card's time in proportion to the weights of the others; 100 if omitted."`
	Cap       config.Percent `yaml:"cap" validate:"min=0,max=100" help:"Most of an engine's time, in percent, even if it idles otherwise. 0: no cap."`
	Priority  int            `yaml:"priority" validate:"min=0,max=7" help:"A guest of higher priority always goes first."`
	Processes int            `yaml:"processes" validate:"min=1,max=4096" help:"Number of processes, each with the load that the other keys describe."`
	throttle.Load
}

// GuestKeys describes the keys of a guest on the command line.
func GuestKeys() []config.Option { return config.Reference(new(guestText)) }

// FileHelp describes a file with a mix of guests.
const FileHelp = `
A file for --mix has the keys name, about, duration, seed, set, policies and guests. Each of guests has
name, weight, cap, priority, limit (of one request), queued (entries that may wait), count (as many alike),
merged (true: its processes are one group), and either processes, a list of the same form, or load with the
other keys above:

  guests:
    - {name: a, weight: 200, load: {busy: 2ms}}
    - {name: b, processes: [{name: p, count: 3, load: {busy: 1ms, think: 5ms}}]}
`

func parseGuest(text string) (*model.Node, error) {
	var g guestText
	if err := config.Assign(&g, "--guest", text, "name=a,busy=2ms,weight=200"); err != nil {
		return nil, err
	}
	n := &model.Node{Name: g.Name, Weight: g.Weight, Cap: int(g.Cap), Priority: g.Priority, Load: &g.Load}
	if g.Processes != 0 {
		n.Nodes, n.Load = []model.Node{{Name: "p", Count: g.Processes, Load: &g.Load}}, nil
	}
	return n, nil
}

// configs are those of the policies.
func (o *Options) configs(f *file) (out []sched.Config, err error) {
	schedule := config.Default().Schedule()
	set := func(where, text string) error {
		before := schedule.Policy
		err := config.Assign(&schedule, where, text, "credit.period=10ms")
		if err == nil && schedule.Policy != before {
			err = &config.Error{Where: where + ": policy", Value: schedule.Policy, Reason: "no parameter; --policy names those to compare"}
		}
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(f.Set)) {
		if err := set(o.File+": set", key+"="+f.Set[key]); err != nil {
			return nil, err
		}
	}
	for _, text := range o.Set {
		if err := set("--set", text); err != nil {
			return nil, err
		}
	}
	policies, where := o.Policies, "--policy"
	if len(policies) == 0 {
		policies, where = f.Policies, o.File+": policies"
	}
	if len(policies) == 0 {
		policies = sched.Policies()
	}
	for i, name := range policies {
		if slices.Contains(policies[:i], name) {
			return nil, &config.Error{Where: where, Value: name, Reason: "is there twice"}
		}
		if !slices.Contains(sched.Policies(), name) {
			return nil, &config.Error{Where: where, Value: name, Reason: config.Known(name, sched.Policies())}
		}
		schedule.Policy = name
		c, err := schedule.Config()
		if err != nil {
			return nil, named("--set ", err)
		}
		out = append(out, *c)
	}
	return out, nil
}

package simulate

import (
	"cmp"
	_ "embed"
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
	Preset   string         `placeholder:"NAME" help:"An experiment by name; see --list (default: nn)."`
	Mix      string         `placeholder:"FILE" help:"Who uses the card, as YAML; see --list."`
	Guest    []string       `sep:"none" placeholder:"KEY=VALUE,..." help:"A guest, such as name=a,busy=2ms,weight=200,processes=3. Repeat it for more; --list has the keys."`
	Policy   []string       `placeholder:"NAME" help:"Policies to compare: none, fifo, credit, band, timeslice, dfq (default: all)."`
	Set      []string       `sep:"none" placeholder:"KEY=VALUE" help:"A parameter, such as credit.period=10ms; see --list."`
	Duration *time.Duration `placeholder:"TIME" help:"Card time to simulate; of a sweep, the longest that a run may take (default: 20s, and 1000s)."`
	Seed     uint64         `placeholder:"N" help:"For what is drawn at random; the same seed gives the same run (default: 1)."`
}

// Defaults of a plan.
const (
	defaultPreset   = "nn"
	defaultDuration = 20 * time.Second
	defaultSweep    = 1000 * time.Second // a run of a sweep is over when its program has ended
	maxDuration     = time.Hour
)

// FileHelp describes a file with a mix of guests.
const FileHelp = `
A file for --mix has the keys name, about, duration, seed, set, policies and guests. Each of guests has
name, weight, cap, priority, limit (of one request), queued (entries that may wait), count (as many alike),
merged (true: its processes are one group), and either processes, a list of the same form, or load with the
other keys above:

  guests:
    - {name: a, weight: 200, load: {busy: 2ms}}
    - {name: b, processes: [{name: p, count: 3, load: {busy: 1ms, think: 5ms}}]}

With axis, a name, and at, a list of numbers, the file is a sweep: it is simulated with each number in place of
$at, until its first process, which needs requests, has ended.
`

// file is a plan as YAML.
type file struct {
	Header   `yaml:",inline"`
	Set      map[string]string `yaml:"set"`
	Policies []string          `yaml:"policies"`
	Guests   []model.Node      `yaml:"guests"`
}

//go:embed presets.yaml
var presets string

// A Preset is an experiment that can be named.
type Preset struct{ Name, About, text string }

// Presets are the experiments of the published work on fair shares, and of the tests.
func Presets() (out []Preset) {
	for text := range strings.SplitSeq(presets, "\n---\n") {
		var p Preset
		if err := yaml.Unmarshal([]byte(text), &p); err != nil {
			panic(err)
		}
		p.text = text
		out = append(out, p)
	}
	return out
}

// Plan makes the plan, or says what is wrong with the options.
func (o *Options) Plan() (*Plan, error) {
	files, err := o.files()
	if err != nil {
		return nil, err
	}
	f := files[0]
	p := &Plan{Header: f.Header}
	for _, f := range files {
		p.Mixes = append(p.Mixes, model.Mix{Guests: f.Guests})
	}
	p.Seed = cmp.Or(o.Seed, f.Seed, 1)
	switch {
	case o.Duration != nil:
		p.Duration = *o.Duration
	case f.Duration == 0 && f.At != nil:
		p.Duration = defaultSweep
	case f.Duration == 0:
		p.Duration = defaultDuration
	}
	if least := windows * time.Millisecond; p.Duration < least || p.Duration > maxDuration {
		return nil, &config.Error{Where: "--duration", Value: p.Duration.String(), Reason: fmt.Sprintf("must be %v to %v", least, maxDuration)}
	}
	p.Configs, err = o.configs(f)
	return p, err
}

// files says who uses the card: flags, or a file or preset, which a sweep reads for each of its points.
func (o *Options) files() (out []*file, err error) {
	switch {
	case o.Preset != "" && o.Mix != "" || (o.Preset != "" || o.Mix != "") && len(o.Guest) > 0:
		return nil, &config.Error{Where: "--preset, --mix and --guest", Value: "more than one of them", Reason: "give one"}
	case len(o.Guest) > 0:
		f := &file{Header: Header{Name: "guests"}}
		for _, text := range o.Guest {
			n, err := parseGuest(text)
			if err != nil {
				return nil, err
			}
			f.Guests = append(f.Guests, *n)
		}
		return []*file{f}, named("--guest: ", f.check())
	}
	name, text, err := o.text()
	if err != nil {
		return nil, err
	}
	var sweep struct{ At []float64 }
	if err := yaml.Unmarshal([]byte(text), &sweep); err != nil || sweep.At == nil {
		sweep.At = []float64{0} // an error is found again below
	}
	for _, at := range sweep.At {
		text := []byte(strings.ReplaceAll(text, "$at", fmt.Sprint(at)))
		f := &file{Header: Header{Name: name}}
		if err := yaml.UnmarshalWithOptions(text, f, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
			return nil, config.YAMLError(name, err)
		}
		if err := f.check(); err != nil {
			return nil, located(name, text, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// check finds mistakes before anything runs.
func (f *file) check() error {
	if err := scaleCaps(f.Guests, "guests"); err != nil {
		return err
	}
	m := model.Mix{Guests: f.Guests}
	return m.Check()
}

// text is the text of the file or the preset.
func (o *Options) text() (name, text string, err error) {
	if o.Mix != "" {
		data, err := config.ReadInput(o.Mix)
		if err != nil {
			return "", "", &config.Error{Where: "--mix", Value: o.Mix, Reason: err.Error()}
		}
		return o.Mix, string(data), nil
	}
	name = cmp.Or(o.Preset, defaultPreset)
	var names []string
	for _, p := range Presets() {
		if names = append(names, p.Name); p.Name == name {
			return name, p.text, nil
		}
	}
	return "", "", &config.Error{Where: "--preset", Value: name, Reason: config.Known(name, names)}
}

// located names the file and, if the error has a path, the line.
func located(name string, data []byte, err error) error {
	e := new(sched.Error)
	tree, parseErr := parser.ParseBytes(data, 0)
	if !errors.As(err, &e) || parseErr != nil {
		return named(name+": ", err)
	}
	for path := e.Field; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] { // or the line of what it is in
		if p, pathErr := yaml.PathString("$." + path); pathErr == nil {
			if node, pathErr := p.FilterFile(tree); pathErr == nil && node != nil {
				return named(fmt.Sprintf("%s:%d: ", name, node.GetToken().Position.Line), err)
			}
		}
	}
	return named(name+": ", err)
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
	var set [][2]string // places and settings
	for _, key := range slices.Sorted(maps.Keys(f.Set)) {
		set = append(set, [2]string{o.Mix + ": set", key + "=" + f.Set[key]})
	}
	for _, text := range o.Set {
		set = append(set, [2]string{"--set", text})
	}
	schedule := config.Default().Schedule()
	for _, s := range set {
		before := schedule.Policy
		if err := config.Assign(&schedule, s[0], s[1], "credit.period=10ms"); err != nil {
			return nil, err
		}
		if schedule.Policy != before {
			return nil, &config.Error{Where: s[0] + ": policy", Value: schedule.Policy, Reason: "no parameter; --policy names those to compare"}
		}
	}
	policies, where := o.Policy, "--policy"
	if len(policies) == 0 {
		policies, where = f.Policies, o.Mix+": policies"
	}
	if len(policies) == 0 {
		policies = sched.Policies()
	}
	for _, name := range policies {
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

package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// GPU is a virtual GPU. A key that it does not have comes from its profile, else from the card
// and the sections of the file, else from the default.
type GPU struct {
	Name    string `yaml:"name" placeholder:"NAME" help:"Name of the GPU: letters, digits and . _ -"`
	Socket  string `yaml:"socket" placeholder:"PATH" help:"UNIX socket that QEMU attaches to."`
	Profile string `yaml:"profile" placeholder:"NAME" help:"Profile that has the keys that the GPU does not have."`
	Share
	CardTime
	Shadow Shadow `yaml:"shadow"`
	Face

	entry
	where map[string]string // by key: how the user wrote it
}

// profile has the keys of a GPU that several can have in common.
type profile struct {
	Name string `yaml:"name" placeholder:"NAME" help:"Name of the profile."`
	Share
	CardTime
	Shadow Shadow `yaml:"shadow"`
	Face
}

// Share is what a virtual GPU gets of the card.
type Share struct {
	VRAM       Size `yaml:"vram" placeholder:"SIZE" validate:"atleast=64MiB,atmost=6GiB,multiple=1MiB" help:"Memory of the GPU. Every GPU needs it, from itself or its profile."`
	Channels   int  `yaml:"channels" placeholder:"N" validate:"min=1,max=128" help:"Channels that the guest may have at a time. By default GPUs share what is left of the card's 128 channels, up to 32 each."`
	Guaranteed int  `yaml:"guaranteed" placeholder:"N" validate:"min=1,max=128" help:"Channels that the guest gets whatever other GPUs use. By default all of them."`
	Tables     Size `yaml:"tables" placeholder:"SIZE" validate:"atleast=1MiB,atmost=1GiB,multiple=1MiB" help:"Memory of the card for the shadows of the guest's page tables. By default it depends on vram."`
}

// Shadow is how the page tables of a guest become the card's.
type Shadow struct {
	Sync string `yaml:"sync" placeholder:"WHEN" default:"lazy" live:"" validate:"oneof=eager flush lazy" help:"When shadow page tables follow the guest's: eager at each entry that the guest writes, flush at each TLB invalidate, lazy before the next work that could see a change."`
	Scan string `yaml:"scan" placeholder:"HOW" default:"incremental" live:"" validate:"oneof=full incremental" help:"How the server finds changed entries: full reads all tables, incremental reads what the guest wrote. Eager needs incremental."`
}

// syncKey is the key that an error about a pair of shadow policies names.
const syncKey = "shadow.sync"

// Policy is what package shadowpt calls it.
func (s *Shadow) Policy() (shadowpt.Policy, error) {
	p := shadowpt.Policy{
		Sync: shadowpt.Sync(slices.Index(shadowpt.Syncs[:], s.Sync)),
		Scan: shadowpt.Scan(slices.Index(shadowpt.Scans[:], s.Scan)),
	}
	return p, p.Check()
}

func (g *GPU) checkShadow(where string) error {
	if _, err := g.Shadow.Policy(); err != nil {
		return &Error{Where: where, Reason: err.Error()}
	}
	return nil
}

// An entry is a GPU or profile as the user gave it.
type entry struct {
	at       string // "f.yaml:6:3: gpus[1]", or "--gpu name=a"
	settings []setting
}

// get returns the text of a setting, "" if there is none.
func (e *entry) get(key string) string {
	for _, s := range e.settings {
		if s.key == key {
			return s.value
		}
	}
	return ""
}

// option names an option of the entry that the user may not have given.
func (e *entry) option(key string) string {
	for _, s := range e.settings {
		if s.key == key {
			return s.where
		}
	}
	if strings.HasSuffix(e.at, "]") {
		return e.at + "." + key
	}
	return e.at + ": " + key
}

// AddGPU adds a virtual GPU that is written as keys and values: name=a,socket=a.sock,tpcs=4,4.
// The source is what it is called in errors: "--gpu".
func (c *Config) AddGPU(source, text string) error {
	e, err := parseEntry(source, text)
	c.gpus = append(c.gpus, e)
	return err
}

// NewGPU completes a virtual GPU that umbra gpu add describes. [Config.Fit] says whether it
// fits beside those that are there.
func (c *Config) NewGPU(text string) (GPU, error) {
	e, err := parseEntry("gpu", text)
	if err != nil {
		return GPU{}, err
	}
	return c.complete(&e)
}

func parseEntry(source, text string) (e entry, err error) {
	e.at = source
	if e.settings, err = pairs(source, text, "name=a,socket=a.sock,vram=256MiB"); err != nil {
		return e, err
	}
	if name := e.get("name"); name != "" {
		e.at += " name=" + name
	}
	return e, assign(options(new(GPU)), e.at, e.settings)
}

// Assign sets the options of a structure as keys and values say. At names the text in errors, and
// example shows one.
func Assign(target any, at, text, example string) error {
	settings, err := pairs(at, text, example)
	if err != nil {
		return err
	}
	return assign(options(target), at, settings)
}

// assign sets options to what settings say, and completes where each stands.
func assign(of []option, at string, settings []setting) error {
	var errs []error
	for i := range settings {
		s := &settings[i]
		s.where = at + ": " + s.key
		j := slices.IndexFunc(of, func(o option) bool { return o.path == s.key })
		switch {
		case j < 0:
			errs = append(errs, &Error{Where: s.where, Reason: "unknown key; " + Known(s.key, slices.Sorted(slices.Values(paths(of))))})
		case s.value == "":
			errs = append(errs, &Error{Where: s.where, Reason: "has no value; give one or leave it out"})
		default:
			if err := of[j].set(s.value); err != nil {
				errs = append(errs, &Error{Where: s.where, Reason: err.Error()})
			}
		}
	}
	return errors.Join(errs...)
}

// Pair splits one part between commas into key and value.
func Pair(part string) (key, value string) {
	key, value, _ = strings.Cut(part, "=")
	return strings.TrimSpace(key), strings.TrimSpace(value)
}

// pairs reads keys and values. A part without a key belongs to the value before it, which has
// commas.
func pairs(source, text, example string) (out []setting, err error) {
	for part := range strings.SplitSeq(text, ",") {
		key, value := Pair(part)
		switch {
		case !strings.Contains(part, "=") && len(out) == 0:
			return nil, &Error{source, text, "not keys and values; write " + example}
		case !strings.Contains(part, "="):
			out[len(out)-1].value += "," + part
		case slices.ContainsFunc(out, func(s setting) bool { return s.key == key }):
			return nil, &Error{source, text, key + " is there twice"}
		default:
			out = append(out, setting{key: key, value: value})
		}
	}
	return out, nil
}

var gpuName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (e *entry) checkName() error {
	switch name := e.get("name"); {
	case name == "":
		return &Error{Where: e.option("name"), Reason: "missing; give one, for example name=a"}
	case !gpuName.MatchString(name):
		return &Error{e.option("name"), name, "may have letters, digits and . _ -, begins with a letter or digit, and has at most 64 of them"}
	}
	return nil
}

func (c *Config) checkProfile(p *entry) error {
	if err := p.checkName(); err != nil {
		return err
	}
	for i := range c.profiles {
		switch q := &c.profiles[i]; {
		case q.at == p.at:
			return nil
		case q.get("name") == p.get("name"):
			return &Error{p.option("name"), p.get("name"), "is there twice, first at " + q.option("name")}
		}
	}
	return nil
}

// complete makes the GPU of an entry.
func (c *Config) complete(e *entry) (GPU, error) {
	g := GPU{entry: *e, where: make(map[string]string)}
	of := options(&g)
	for _, o := range of {
		if text, ok := o.tag.Lookup("default"); ok {
			if err := o.set(text); err != nil {
				return g, fmt.Errorf("default of %s: %w", o.path, err)
			}
		}
	}
	g.Face, g.Shadow = c.Card.Face, c.Shadow
	if err := e.checkName(); err != nil {
		return g, err
	}
	settings := e.settings
	if name := e.get("profile"); name != "" {
		i := slices.IndexFunc(c.profiles, func(p entry) bool { return p.get("name") == name })
		if i < 0 {
			var names []string
			for _, p := range c.profiles {
				names = append(names, p.get("name"))
			}
			reason := "no such profile; there are none"
			if len(names) > 0 {
				reason = "no such profile; " + Known(name, names)
			}
			return g, &Error{e.option("profile"), name, reason}
		}
		settings = append(slices.Clone(c.profiles[i].settings), settings...)
	}
	for _, s := range settings {
		o := of[slices.IndexFunc(of, func(o option) bool { return o.path == s.key })]
		if err := o.set(s.value); err != nil {
			return g, &Error{Where: s.where, Reason: err.Error()}
		}
		g.where[s.key] = s.where
	}
	var errs []error
	if g.Socket == "" {
		errs = append(errs, &Error{Where: g.Where("socket"), Reason: "missing; say where QEMU shall attach, for example " + g.Name + ".sock"})
	}
	if g.VRAM == 0 {
		errs = append(errs, &Error{Where: g.Where("vram"), Reason: "missing; say how much of the card's memory it gets, for example 256MiB"})
	}
	if g.Channels > 0 && g.Guaranteed > g.Channels {
		errs = append(errs, &Error{g.Where("guaranteed"), fmt.Sprint(g.Guaranteed), fmt.Sprintf("more than its %d channels (%s)", g.Channels, g.Where("channels"))})
	}
	if g.Tables == 0 {
		g.Tables = tablesFor(g.VRAM)
	}
	where := g.Where(syncKey)
	if g.where[syncKey] == "" && c.Given(syncKey) {
		where = c.Where(syncKey)
	}
	errs = append(errs, g.checkShadow(where))
	return g, errors.Join(errs...)
}

// Where names the option key of the GPU as the user wrote it.
func (g *GPU) Where(key string) string {
	if w := g.where[key]; w != "" {
		return w
	}
	return g.option(key)
}

// Change returns the GPU with options changed as keys and values say:
// shadow.sync=lazy,weight=200. Only live options can be changed.
func (g GPU) Change(text string) (GPU, error) {
	at := "gpu " + g.Name
	settings, err := pairs(at, text, "shadow.sync=lazy")
	if err != nil {
		return g, err
	}
	changed := g
	changed.where = maps.Clone(g.where)
	of := options(&changed)
	live := slices.DeleteFunc(slices.Clone(of), func(o option) bool { return !o.live() })
	for _, s := range settings {
		if slices.Contains(paths(of), s.key) && !slices.Contains(paths(live), s.key) {
			return g, &Error{Where: at + ": " + s.key, Reason: fmt.Sprintf("cannot be changed while the GPU is there; remove the GPU and add it with %s=%s. These can: %s",
				s.key, s.value, strings.Join(slices.Sorted(slices.Values(paths(live))), ", "))}
		}
	}
	if err := assign(live, at, settings); err != nil {
		return g, err
	}
	for _, s := range settings {
		changed.where[s.key] = s.where
	}
	if err := changed.checkShadow(at + ": " + syncKey); err != nil {
		return g, err
	}
	return changed, nil
}

// Settings lists the options of a completed GPU, with what they inherit from the schedule. Without a
// scheduler, nil, it leaves out the share of the card's time.
func (g *GPU) Settings(from *Schedule) []Setting {
	out := Settings(g)
	if from == nil {
		return slices.DeleteFunc(out, func(s Setting) bool { return isCardTime(s.Key) })
	}
	for _, above := range Settings(from) {
		for i := range out {
			if s := &out[i]; s.Key == above.Key && s.Value == inherited {
				s.Inherited = above.Value
			}
		}
	}
	return out
}

package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
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
	Access Access `yaml:"access"`
	Shadow Shadow `yaml:"shadow"`
	Face

	entry // with the settings of its profile before its own

	server *entry // what the user gave of the server, which the GPU inherits
}

// Where names the option as the user wrote it, for all GPUs or this one, or would for this one.
func (g *GPU) Where(key string) string {
	path := ""
	if find(options(new(Face)), key) != nil {
		path = "card." + key
	} else if strings.HasPrefix(key, "access.") || strings.HasPrefix(key, "shadow.") {
		path = key
	}
	if g.server != nil && !g.Given(key) && g.server.Given(path) {
		return g.server.Where(path)
	}
	return g.entry.Where(key)
}

// Share is what a virtual GPU gets of the card.
type Share struct {
	VRAM       Size `yaml:"vram" placeholder:"SIZE" validate:"min=64MiB,max=64GiB,multiple=1MiB" help:"Memory of the GPU. Every GPU needs it, from itself or its profile."`
	Channels   int  `yaml:"channels" placeholder:"N" validate:"min=1,max=128" help:"Channels that the guest may have at a time. By default GPUs share what is left of the card's 128 channels, up to 32 each."`
	Guaranteed int  `yaml:"guaranteed" placeholder:"N" validate:"min=1,max=128" help:"Channels that the guest gets whatever other GPUs use. By default all of them."`
	Tables     Size `yaml:"tables" placeholder:"SIZE" validate:"min=1MiB,max=1GiB,multiple=1MiB" help:"Memory of the card for the shadows of the guest's page tables. By default it depends on vram."`
}

// Shadow is how the page tables of a guest become the card's.
type Shadow struct {
	Sync string `yaml:"sync" placeholder:"WHEN" default:"lazy" live:"" validate:"oneof=flush lazy" help:"When shadow page tables follow the guest's: flush at each TLB invalidate, lazy before the next work that could see a change."`
	Scan string `yaml:"scan" placeholder:"HOW" default:"incremental" live:"" validate:"oneof=full incremental" help:"How the server finds changed entries: full reads all tables, incremental reads what the guest wrote."`
}

// Policy is what package shadowpt calls it.
func (s *Shadow) Policy() shadowpt.Policy {
	return shadowpt.Policy{
		Sync: shadowpt.Sync(slices.Index(shadowpt.Syncs[:], s.Sync)),
		Scan: shadowpt.Scan(slices.Index(shadowpt.Scans[:], s.Scan)),
	}
}

var gpuName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (e *entry) checkName() error {
	switch name := e.get("name").value; {
	case e.get("name").bad:
		return nil
	case name == "":
		return &Error{Where: e.Where("name"), Reason: "missing; give one, for example name=a"}
	case !gpuName.MatchString(name):
		return &Error{e.Where("name"), name, "may have letters, digits and . _ -, begins with a letter or digit, and has at most 64 of them"}
	}
	return nil
}

// checkProfiles checks the names of all profiles.
func (c *Config) checkProfiles() error {
	var errs []error
	names := make(claims)
	for i := range c.profiles {
		p := &c.profiles[i]
		name := p.get("name").value
		errs = append(errs, cmp.Or(p.checkName(), names.claim(name, name, p.Where("name"), "a name")))
		for _, key := range []string{"socket", "profile"} {
			if p.Given(key) {
				errs = append(errs, &Error{Where: p.Where(key), Reason: "a profile has none; give it to each GPU"})
			}
		}
	}
	return errors.Join(errs...)
}

// AddGPU adds a virtual GPU that is written as keys and values: name=a,socket=a.sock,tpcs=4,4.
// The source is what it is called in errors: "--gpu".
func (c *Config) AddGPU(source, text string) error {
	e, err := parseEntry(source, text)
	c.gpus, c.failed = append(c.gpus, e), c.failed || err != nil
	return err
}

// NewGPU completes a virtual GPU that umbra gpu add describes. [Config.Fit] says whether it
// fits beside those that are there.
func (c *Config) NewGPU(text string) (GPU, error) {
	e, err := parseEntry("gpu", text)
	if err != nil {
		return GPU{}, err
	}
	return c.complete(e)
}

func parseEntry(source, text string) (e entry, err error) {
	e.at = source
	if e.settings, err = pairs(source, text, "name=a,socket=a.sock,vram=256MiB"); err != nil {
		return e, err
	}
	if name := e.get("name").value; name != "" {
		e.at += " name=" + name
	}
	return e, assign(options(new(GPU)), e.at, e.settings)
}

// settingsOf returns the settings of a GPU, after those of its profile.
func (c *Config) settingsOf(e *entry) ([]setting, error) {
	name := e.get("profile").value
	if name == "" {
		return e.settings, nil
	}
	var names []string
	for i := range c.profiles {
		p := &c.profiles[i]
		if names = append(names, p.get("name").value); names[i] == name {
			return slices.Concat(p.settings, e.settings), nil
		}
	}
	reason := "no such profile; there are none"
	if len(names) > 0 {
		reason = "no such profile; " + Known(name, names)
	}
	return e.settings, &Error{e.Where("profile"), name, reason}
}

// complete makes the GPU of an entry.
func (c *Config) complete(e entry) (g GPU, err error) {
	setDefaults(&g)
	g.Face, g.Shadow, g.Access, g.entry = c.Card.Face, c.Shadow, c.Access, e
	g.server = &c.given
	var profile error
	g.settings, profile = c.settingsOf(&e)
	of := options(&g)
	useDefaults(of, cmp.Or(g.get("chip").value, g.Chip), func(key string) bool { return c.Given("card." + key) })
	for _, s := range g.settings {
		if s.bad {
			continue
		}
		if err := find(of, s.key).set(s.value); err != nil {
			return g, &Error{Where: s.where, Reason: err.Error()}
		}
	}
	errs := []error{e.checkName(), profile, c.unfitKind(of, g.settings)}
	if profile == nil && !g.get("chip").bad { // else the chip is not known
		errs = append(errs, unfit(of, g.settings, "chip", g.Chip, g.Where("chip")), g.checkMemory())
	}
	if g.Given("chip") || g.Given("bar-map") { // else those of the card
		errs = append(errs, c.checkNvidiaFace(&g.Face, g.Where))
	}
	if err := c.inherit(GPUSocket+g.Name, &g.Socket, &e, "socket", "access"); err != nil {
		errs = append(errs, err)
	} else if g.Socket == "" && !g.get("socket").bad {
		errs = append(errs, &Error{Where: g.Where("socket"), Reason: "missing; say where QEMU shall attach, for example " + cmp.Or(g.Name, "a") + ".sock"})
	}
	if g.VRAM == 0 && profile == nil && !g.get("vram").bad {
		errs = append(errs, &Error{Where: g.Where("vram"), Reason: fmt.Sprintf("missing; say how much of the card's memory it gets, for example %v", max(256*mib, memories[g.Chip].unit))})
	}
	if g.Channels > 0 && g.Guaranteed > g.Channels {
		errs = append(errs, &Error{g.Where("guaranteed"), fmt.Sprint(g.Guaranteed), fmt.Sprintf("more than its %d channels (%s)", g.Channels, g.Where("channels"))})
	}
	g.Tables = cmp.Or(g.Tables, tablesFor(g.VRAM))
	return g, errors.Join(errs...)
}

// Unfitted is the GPU before [Config.Fit] gave it what it does not say.
func (g GPU) Unfitted() GPU {
	if !g.Given("channels") {
		g.Channels = 0
	}
	if !g.Given("guaranteed") {
		g.Guaranteed = 0
	}
	return g
}

// Change returns the GPU with options changed as keys and values say:
// shadow.sync=lazy,weight=200. Only live options can be changed, and a share of the card's time
// only as guests share it.
func (g GPU) Change(text string, how Sharing) (GPU, error) {
	at := "gpu " + g.Name
	settings, err := pairs(at, text, "shadow.sync=lazy")
	if err != nil {
		return g, err
	}
	changed := g
	all := options(&changed)
	live := slices.DeleteFunc(slices.Clone(all), func(o option) bool { return !o.live() })
	for _, s := range settings {
		switch o := find(all, s.key); {
		case o != nil && !o.live():
			return g, &Error{Where: at + ": " + s.key, Reason: fmt.Sprintf("cannot be changed while the GPU is there; remove the GPU and add it with %s=%s. These can: %s",
				s.key, s.value, strings.Join(slices.Sorted(slices.Values(keys(live))), ", "))}
		case o != nil && !how.has(o.path) && how == BySlices:
			return g, &Error{at + ": " + s.key, s.value, "has no effect: this card shares its engines by weight alone"}
		case o != nil && !how.has(o.path):
			return g, &Error{at + ": " + s.key, s.value, "has no effect without a scheduler; " + WithScheduler}
		}
	}
	if err := assign(live, at, settings); err != nil {
		return g, err
	}
	changed.settings = slices.Concat(g.settings, settings)
	return changed, nil
}

// Settings lists the options of a completed GPU, with what they inherit from the schedule. It leaves out what
// has no effect as guests share the card.
func (g *GPU) Settings(how Sharing, from Schedule) []api.Setting {
	out := slices.DeleteFunc(Settings(g), func(s api.Setting) bool { return !how.has(s.Key) })
	of := options(&from)
	for i := range out {
		if s := &out[i]; s.Value == inherited {
			s.Inherited = find(of, s.Key).text()
		}
	}
	return out
}

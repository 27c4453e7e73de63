package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Save writes a file that makes the same server again, with this schedule and these completed GPUs. It has what the
// user gave and what was changed since; a GPU also has the numbers that depend on the other GPUs.
func (c *Config) Save(now Schedule, gpus []GPU) ([]byte, error) {
	changed := options(&now)
	var top yaml.MapSlice
	for _, o := range options(c) {
		value := o
		if key, of := strings.CutPrefix(o.path, "scheduler."); of || strings.HasPrefix(key, "limits.") {
			if s := find(changed, key); s != nil {
				value = *s
			}
		}
		if c.Given(o.path) || value.text() != o.text() {
			top = put(top, o.path, value)
		}
	}
	var list []yaml.MapSlice
	for i := range gpus {
		g := &gpus[i]
		least := entry{at: "gpu " + g.Name}
		for _, key := range []string{"name", "socket", "vram", "chip"} {
			if o := find(options(g), key); key != "chip" || g.Chip != c.Card.Chip {
				least.settings = append(least.settings, setting{key: key, value: o.text(), where: least.at})
			}
		}
		plain, err := c.complete(least)
		if err != nil {
			return nil, err
		}
		of := options(&plain)
		var out yaml.MapSlice
		for _, o := range options(g) {
			if o.path != "profile" && (least.Given(o.path) || o.text() != find(of, o.path).text()) {
				out = put(out, o.path, o)
			}
		}
		list = append(list, out)
	}
	if list != nil {
		top = append(top, yaml.MapItem{Key: "gpus", Value: list})
	}
	return yaml.Marshal(top)
}

// put adds an option to a mapping, in the mapping of its section.
func put(in yaml.MapSlice, path string, o option) yaml.MapSlice {
	section, rest, nested := strings.Cut(path, ".")
	if !nested {
		var value any = o.text()
		switch v := o.value.Interface().(type) {
		case int, bool:
			value = v
		}
		return append(in, yaml.MapItem{Key: path, Value: value})
	}
	at := slices.IndexFunc(in, func(m yaml.MapItem) bool { return m.Key == section })
	if at < 0 {
		in, at = append(in, yaml.MapItem{Key: section, Value: yaml.MapSlice(nil)}), len(in)
	}
	in[at].Value = put(in[at].Value.(yaml.MapSlice), rest, o)
	return in
}

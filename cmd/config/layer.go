package config

import (
	"fmt"
	"slices"
	"strings"
)

// An Error is something wrong with what the user wrote.
type Error struct {
	Where  string // the option as the user wrote it: "--vram", or "card.yaml:3: card.vram"
	Value  string // what stands there; "" if nothing
	Reason string // what is wrong, and what would be right
}

func (e *Error) Error() string {
	if e.Value == "" {
		return e.Where + ": " + e.Reason
	}
	return fmt.Sprintf("%s: %s: %s", e.Where, e.Value, e.Reason)
}

// A Layer is one source of options: the defaults, a file, the flags.
type Layer struct {
	Config Config
	where  map[string]string // the options that the source gives, by path: how the user wrote them
}

func (l *Layer) given(path, where string) {
	if l.where == nil {
		l.where = make(map[string]string)
	}
	l.where[path] = where
}

// defaultOf is what stands before an option that nobody gave.
const defaultOf = "default of "

// Defaults is the layer below all others.
func Defaults() Layer {
	var l Layer
	for _, o := range options(&l.Config) {
		text, ok := o.tag.Lookup("def")
		if !ok {
			continue
		}
		if err := o.set(text); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", o.path, err))
		}
		l.given(o.path, defaultOf+o.path)
	}
	return l
}

// Flags is the layer of the options in c whose flags are in set.
func Flags(c Config, set []string) Layer {
	l := Layer{Config: c}
	for _, o := range options(&l.Config) {
		if slices.Contains(set, o.flag) {
			l.given(o.path, "--"+o.flag)
		}
	}
	return l
}

// Join puts layers on top of each other, the last one uppermost, and checks the
// result. Virtual GPUs of all layers add up.
func Join(layers ...Layer) (Layer, error) {
	var out Layer
	for _, l := range layers {
		from := options(&l.Config)
		for i, to := range options(&out.Config) {
			if where, ok := l.where[to.path]; ok {
				to.value.Set(from[i].value)
				out.given(to.path, where)
			}
		}
		out.Config.Profiles = append(out.Config.Profiles, l.Config.Profiles...)
		out.Config.GPUs = append(out.Config.GPUs, l.Config.GPUs...)
	}
	for _, o := range options(&out.Config) {
		if err := o.check(); err != nil {
			return out, &Error{Where: out.Where(o.path), Value: fmt.Sprint(o.value.Interface()), Reason: err.Error()}
		}
	}
	return out, out.complete()
}

// Where says how the user wrote the option at path: the flag, or its place in
// the file.
func (l *Layer) Where(path string) string {
	if w, ok := l.where[path]; ok {
		return w
	}
	for _, o := range options(&l.Config) {
		if o.path == path {
			return fmt.Sprintf("--%s (or %s in the file)", o.flag, path)
		}
	}
	return path
}

// isDefault tells whether nobody gave the option at path.
func (l *Layer) isDefault(path string) bool { return strings.HasPrefix(l.where[path], defaultOf) }

// Given tells whether any layer gave the option at path.
func (l *Layer) Given(path string) bool { _, ok := l.where[path]; return ok }

// Values lists every option by path, for machines to read, without the lists.
func (c *Config) Values() map[string]any { return values(c) }

// FlagNames are the names of the options' flags, by path.
func (c *Config) FlagNames() map[string]string {
	out := make(map[string]string)
	for _, o := range options(c) {
		out[o.path] = o.flag
	}
	return out
}

// Values lists every option by key, for machines to read.
func (g *GPU) Values() map[string]any { return values(g) }

func values(p any) map[string]any {
	out := make(map[string]any)
	for _, o := range options(p) {
		out[o.path] = o.value.Interface()
	}
	return out
}

package config

import (
	"strings"
)

// Setting is an option in force, and who said so.
type Setting struct {
	Key   string
	Value any // a number or truth value, or the text that its key takes
	From  string
	Live  bool // [Change] takes it
}

// Settings lists all options of a completed virtual GPU. Those of its part of the card's
// time are left out where there is no scheduler, for they have no effect.
func (l *Layer) Settings(g *GPU, scheduled bool) (out []Setting) {
	for _, o := range options(g) {
		if !scheduled && isCardTime(o.path) {
			continue
		}
		s := o.setting(l.sourceOf(g, o.path))
		if g.Limits.Request == 0 && o.path == "limits.request" {
			s.From += ", which is the server's limits.request"
		}
		out = append(out, s)
	}
	return out
}

// CardSettings lists all options of a card that one guest has.
func (l *Layer) CardSettings() (out []Setting) {
	for _, o := range options(&l.Config) {
		if strings.HasPrefix(o.path, "card.") || strings.HasPrefix(o.path, "server.") {
			s := o.setting(l.source(o.path))
			s.Live = false
			out = append(out, s)
		}
	}
	return out
}

func (o *option) setting(from string) Setting {
	s := Setting{Key: o.path, Value: o.value.Interface(), From: from, Live: o.live()}
	switch s.Value.(type) {
	case int, bool, Percent:
	default:
		s.Value = o.text()
	}
	return s
}

// Those who say an option, beside flags and files.
const (
	byDefault = "default"
	byAdd     = "umbra gpu add"
	bySet     = "umbra gpu set"
	byRule    = "worked out" // of the other options
)

// source is who said an option of the configuration.
func (l *Layer) source(path string) string {
	if !l.Given(path) || l.isDefault(path) {
		return byDefault
	}
	return l.Where(path)
}

// sourceOf is who said an option of a GPU: it, its profile, or what it has it from.
func (l *Layer) sourceOf(g *GPU, key string) string {
	if where, ok := g.given[key]; ok {
		switch {
		case strings.HasPrefix(where, "gpu "+g.Name+": "):
			return bySet
		case strings.HasPrefix(where, addSource+" "):
			return byAdd
		}
		return where
	}
	for _, path := range []string{"card." + key, "server." + key, key} {
		if key != "vram" && l.Given(path) && !isCardTime(key) {
			return l.source(path)
		}
	}
	switch key {
	case "tables", "channels", "guaranteed":
		return byRule
	}
	return byDefault
}

// addSource is what umbra gpu add's text is called in errors.
const addSource = "gpu"

// ParseAdded reads a virtual GPU that is added to those that are there.
func ParseAdded(text string) (GPU, error) { return ParseGPU(addSource, text) }

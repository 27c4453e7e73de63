package config

import (
	"fmt"
	"slices"
	"strings"
)

// entry is how the user wrote an element of a list.
type entry struct {
	at    string            // the element: "f.yaml:6: gpus[1]"
	given map[string]string // its options by key: "f.yaml:7: gpus[1].vram"
}

// element is what a list holds.
type element interface{ self() *entry }

func (e *entry) self() *entry { return e }

// Where says how the user wrote the option key of the element.
func (e *entry) Where(key string) string {
	switch w, ok := e.given[key]; {
	case ok:
		return w
	case strings.HasSuffix(e.at, "]"):
		return e.at + "." + key
	default:
		return e.at + ": " + key
	}
}

// has tells whether the user gave the option, or the element has it from
// elsewhere.
func (e *entry) has(key string) bool { _, ok := e.given[key]; return ok }

// inherit gives an element every option that it has not and from has. Both are
// pointers to structures that [options] knows.
func inherit(to element, from any, has func(key string) bool, except ...string) {
	source := make(map[string]option)
	for _, o := range options(from) {
		source[o.path] = o
	}
	e := to.self()
	for _, o := range options(to) {
		s, ok := source[o.path]
		if !ok || e.has(o.path) || !has(o.path) || slices.Contains(except, o.path) {
			continue
		}
		o.value.Set(s.value)
		if f, ok := from.(element); ok {
			e.given[o.path] = f.self().Where(o.path)
		}
	}
}

// checkOptions holds the options that the element has against their bounds.
func checkOptions(p element) error {
	e := p.self()
	for _, o := range options(p) {
		if !e.has(o.path) {
			continue
		}
		if err := o.check(); err != nil {
			return &Error{Where: e.Where(o.path), Value: fmt.Sprint(o.value.Interface()), Reason: err.Error()}
		}
	}
	return nil
}

// ParseGPU reads a virtual GPU written as keys and values:
// name=a,socket=a.sock,tpcs=4,4,vram=256MiB. The source is what it is called in
// errors: "--gpu".
func ParseGPU(source, text string) (GPU, error) {
	g := GPU{entry: entry{at: source, given: make(map[string]string)}}
	err := g.assign(source, text, "name=a,socket=a.sock,vram=256MiB", func(option) bool { return true })
	return g, err
}

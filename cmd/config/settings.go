package config

import (
	"fmt"
	"strings"
	"time"
)

// Setting is an option in force.
type Setting struct {
	Key   string
	Value string // the text that its key takes
	Live  bool   // [Layer.Change] takes it
}

// WithScheduler says how to get a scheduler.
const WithScheduler = "start the server with scheduler.policy (--sched-policy), for example credit"

// Settings lists the options of a completed virtual GPU. Its share of the card's time is left
// out without a scheduler.
func (g *GPU) Settings(scheduled bool) (out []Setting) {
	for _, o := range options(g) {
		if scheduled || !isCardTime(o.path) {
			out = append(out, o.setting())
		}
	}
	return out
}

// CardSettings lists the options of a card that one guest has.
func (c *Config) CardSettings() (out []Setting) {
	for _, o := range options(c) {
		if strings.HasPrefix(o.path, "card.") || strings.HasPrefix(o.path, "server.") {
			s := o.setting()
			s.Live = false
			out = append(out, s)
		}
	}
	return out
}

func (o *option) setting() Setting {
	return Setting{Key: o.path, Value: o.text(), Live: o.live()}
}

// text is the option's value as its key takes it.
func (o *option) text() string {
	if d, ok := o.value.Interface().(time.Duration); ok {
		return d.String()
	}
	return fmt.Sprint(o.value.Interface())
}

// addSource is what umbra gpu add's text is called in errors.
const addSource = "gpu"

// ParseAdded reads a virtual GPU that is added to those that are there.
func ParseAdded(text string) (GPU, error) { return ParseGPU(addSource, text) }

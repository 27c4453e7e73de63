package simulate

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// node is who uses the card, as people write it: the words and bounds are those of a GPU
// in umbra serve's file. The bounds are of what is said; nothing said is the default.
type node struct {
	Name     string         `yaml:"name"`
	Weight   int            `yaml:"weight" min:"1" max:"10000"`
	Cap      config.Percent `yaml:"cap" min:"0" max:"100"`
	Priority int            `yaml:"priority" min:"0" max:"7"`
	Limit    time.Duration  `yaml:"limit" min:"0s" max:"1h"`
	Queued   int            `yaml:"queued" min:"0" max:"1073741824"`
	Count    int            `yaml:"count" min:"1" max:"4096"`
	Merged   bool           `yaml:"merged"`
	Load     *throttle.Load `yaml:"load"`
	Nodes    []node         `yaml:"processes"`
}

// perCent is what of a cap the scheduler calls one.
const perCent = sched.FullCap / 100

// model is what package model calls it.
func (n *node) model() model.Node {
	out := model.Node{
		Name: n.Name, Weight: n.Weight, Cap: int(n.Cap) * perCent, Priority: n.Priority,
		Limit: n.Limit, Queued: n.Queued, Count: n.Count, Merged: n.Merged, Load: n.Load,
	}
	for i := range n.Nodes {
		out.Nodes = append(out.Nodes, n.Nodes[i].model())
	}
	return out
}

// put writes a value into what v holds, if it keeps to the field's bounds.
func put(v reflect.Value, tag reflect.StructTag, text string) (err error) {
	switch p := v.Addr().Interface().(type) {
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	case *uint64:
		if *p, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("%q is not a whole number, 0 or more", text)
		}
	case *config.Percent:
		err = p.UnmarshalText([]byte(text))
	case *bool:
		b, ok := map[string]bool{"true": true, "false": false}[text]
		if !ok {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*p = b
	case *time.Duration:
		*p, err = config.ParseTime(text)
	case *string:
		*p = text
	default:
		panic(fmt.Sprintf("simulate: a mix has a %T, which nothing parses", p))
	}
	if err != nil {
		return err
	}
	return within(v, tag, text)
}

// within holds a value against the field's bounds.
func within(v reflect.Value, tag reflect.StructTag, text string) error {
	low, high := tag.Get("min"), tag.Get("max")
	if low == "" {
		return nil
	}
	bound := func(text string) int64 {
		b := reflect.New(v.Type()).Elem()
		if err := put(b, "", text); err != nil {
			panic(fmt.Sprintf("simulate: bound %s: %v", text, err))
		}
		return b.Int()
	}
	if n := v.Int(); n < bound(low) || n > bound(high) {
		return fmt.Errorf("%s: must be %s to %s", text, low, high)
	}
	return nil
}

// keys lists the keys of a mapping that is read into a t.
func keys(t reflect.Type) (out []string) {
	for i := range t.NumField() {
		out = append(out, t.Field(i).Tag.Get("yaml"))
	}
	return out
}

// field returns the field for a key.
func field(v reflect.Value, key string) (reflect.Value, reflect.StructTag, bool) {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Tag.Get("yaml") == key {
			return v.Field(i), f.Tag, true
		}
	}
	return reflect.Value{}, "", false
}

// inFlag are the keys of a node that --guest takes, beside those of a load and processes.
var inFlag = []string{"name", "weight", "cap", "priority"}

// parseGuest reads a guest written as keys and values. With processes=N it has so
// many processes with the load.
func parseGuest(text string) (model.Node, error) {
	var n node
	var l throttle.Load
	var among struct {
		Processes int `yaml:"processes" min:"1" max:"4096"`
	}
	known := slices.Concat([]string{"processes"}, inFlag, keys(reflect.TypeFor[throttle.Load]()))
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			return model.Node{}, &config.Error{Where: "--guest", Value: text, Reason: "not keys and values; write name=a,busy=2ms,weight=200"}
		}
		if !slices.Contains(known, key) {
			return model.Node{}, &config.Error{Where: "--guest: " + key, Reason: "unknown key; " + config.Known(key, known)}
		}
		if seen[key] {
			return model.Node{}, &config.Error{Where: "--guest", Value: text, Reason: key + " is there twice"}
		}
		seen[key] = true
		in := reflect.ValueOf(&l).Elem()
		if slices.Contains(inFlag, key) {
			in = reflect.ValueOf(&n).Elem()
		} else if key == "processes" {
			in = reflect.ValueOf(&among).Elem()
		}
		at, tag, _ := field(in, key)
		if err := put(at, tag, value); err != nil {
			return model.Node{}, &config.Error{Where: "--guest: " + key, Reason: err.Error()}
		}
	}
	if among.Processes == 0 {
		n.Load = &l
	} else {
		n.Nodes = []node{{Name: "p", Count: among.Processes, Load: &l}}
	}
	return n.model(), nil
}

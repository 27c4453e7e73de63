package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Shadow is how the page tables of a virtual GPU's guest become the card's.
type Shadow struct {
	Sync  string `yaml:"sync" placeholder:"WHEN" def:"lazy" live:"" oneof:"eager,flush,lazy,adaptive" help:"When a guest's page tables become the card's. Eager: at each entry that is written; flush: at each TLB invalidate; lazy: before the next work that could see them; adaptive: each table lazy or eager, by how it is written."`
	Scan  string `yaml:"scan" placeholder:"HOW" def:"incremental" live:"" oneof:"full,incremental" help:"How it is found out what changed in them. Full: by reading all; incremental: by what was written. Eager and adaptive want incremental."`
	Burst int    `yaml:"burst" placeholder:"N" def:"64" live:"" min:"0" max:"65534" help:"Adaptive: a page of a table with more trapped writes between two flush points is dense, and waits for the next."`
	Calm  int    `yaml:"calm" placeholder:"N" def:"4" live:"" min:"1" max:"255" help:"Adaptive: a dense page with no more than that before so many flush points in a row is dense no longer."`
}

// shadowKeys begin the keys of its options.
const shadowKeys = "shadow."

// Policy is what package shadowpt calls it, and why that cannot be.
func (s *Shadow) Policy() (shadowpt.Policy, error) {
	p := shadowpt.Policy{
		Sync: shadowpt.Sync(slices.Index(shadowpt.Syncs[:], s.Sync)), Scan: shadowpt.Scan(slices.Index(shadowpt.Scans[:], s.Scan)),
		Rule: shadowpt.Rule{Burst: s.Burst, Calm: s.Calm},
	}
	return p, p.Check()
}

// ShadowOf is the reverse of Policy.
func ShadowOf(p shadowpt.Policy) Shadow {
	return Shadow{Sync: p.Sync.String(), Scan: p.Scan.String(), Burst: p.Rule.Burst, Calm: p.Rule.Calm}
}

// Keys of the two that do not go together whatever they are.
const (
	syncKey = shadowKeys + "sync"
	scanKey = shadowKeys + "scan"
)

// checkShadow refuses what is possible alone but not together. Of the two it names the one
// that was said for this GPU, and who said the other.
func (g *GPU) checkShadow(said func(key string) string) error {
	p, err := g.Shadow.Policy()
	if err == nil {
		return nil
	}
	key, value := syncKey, g.Shadow.Sync
	other, stands := scanKey, g.Shadow.Scan
	if g.has(scanKey) && !g.has(syncKey) {
		key, value, other, stands = other, stands, key, value
	}
	var with []string // values of the other one that the first goes with
	for _, c := range shadowpt.Policies() {
		switch {
		case c.Sync == p.Sync && key == syncKey:
			with = append(with, c.Scan.String())
		case c.Scan == p.Scan && key == scanKey:
			with = append(with, c.Sync.String())
		}
	}
	where := g.Where(key)
	if from := said(key); !g.has(key) && from != byDefault {
		where = from // neither was said for this GPU
	}
	if slices.Contains(with, stands) {
		return &Error{Where: where, Reason: err.Error()} // it is about something else
	}
	return &Error{Where: where, Reason: fmt.Sprintf("%s does not go with %s=%s (%s); set %[2]s=%[5]s too", value, other, stands, said(other), either(with))}
}

// Change returns a GPU that is there with options changed as keys and values say:
// shadow.sync=lazy,shadow.scan=full. Only those whose row says live can be.
func (l *Layer) Change(g GPU, text string) (GPU, error) {
	changed := g
	changed.entry = entry{at: "gpu " + g.Name, given: make(map[string]string)}
	err := changed.assign(changed.at, text, "shadow.sync=lazy", option.live)
	if changed.has(policyKey) && changed.Processes.Policy != processesWeighted && !changed.has(weightsKey) {
		changed.Processes.Weights = nil // they went with the policy before
	}
	if err == nil {
		err = checkOptions(&changed)
	}
	if err == nil {
		err = changed.checkShadow(func(key string) string {
			if changed.has(key) {
				return "said with it"
			}
			return l.sourceOf(&g, key)
		})
	}
	if err == nil {
		err = changed.checkCardTime()
	}
	if err != nil {
		return g, err
	}
	where := changed.given
	changed.entry = entry{at: g.at, given: maps.Clone(g.given)}
	maps.Copy(changed.given, where)
	return changed, nil
}

// Live lists the options that can be changed while the GPU is there, by key.
func (g *GPU) Live() map[string]any {
	out := make(map[string]any)
	for _, o := range options(g) {
		if !o.live() {
			continue
		}
		out[o.path] = o.value.Interface()
		if d, ok := out[o.path].(time.Duration); ok {
			out[o.path] = d.String() // as it is written
		}
	}
	return out
}

func (o option) live() bool { _, ok := o.tag.Lookup("live"); return ok }

// notLive says why a key that there is cannot be set.
const notLive = "cannot be changed while the GPU is there"

// unknownOfGPU says that there is no such key of a GPU, and what may be meant: the same words
// put together otherwise, an option of the server, or a key that is written alike.
func unknownOfGPU(key, value string, known []string) string {
	if key, ok := meantOfGPU(key, value); ok {
		why := fmt.Sprintf("unknown key; did you mean %q?", key)
		if name, _, _ := strings.Cut(key, "="); !slices.Contains(known, name) {
			why += fmt.Sprintf(" That %s.", notLive)
		}
		return why + " There are " + strings.Join(known, ", ")
	}
	for _, o := range options(new(Config)) {
		if o.path != key {
			continue
		}
		why := fmt.Sprintf("is the server's, not a GPU's; give --%s to umbra serve", o.flag)
		if scheduled := strings.TrimPrefix(key, schedulerKeys); o.live() && slices.Contains(new(Schedule).Keys(), scheduled) {
			why += fmt.Sprintf(", or umbra sched set %s=%s", scheduled, value)
		}
		return why
	}
	return "unknown key; " + Known(key, known)
}

// meantOfGPU finds the key that has the same words with other signs between them, the one that
// ends in this word, or the one of a section that takes the value. Of several none is meant.
func meantOfGPU(key, value string) (string, bool) {
	plain := strings.NewReplacer(".", "-", "_", "-")
	_, last, _ := strings.Cut(key, ".") // card.bar1
	var like, ends, takes []string
	for _, o := range options(new(GPU)) {
		section, _, nested := strings.Cut(o.path, ".")
		switch {
		case plain.Replace(o.path) == plain.Replace(key):
			like = append(like, o.path)
		case strings.HasSuffix(o.path, "."+key), o.path == last:
			ends = append(ends, o.path)
		case nested && section == key && slices.Contains(strings.Split(o.tag.Get("oneof"), ","), value):
			takes = append(takes, o.path+"="+value)
		}
	}
	for _, found := range [][]string{like, ends, takes} {
		if len(found) == 1 {
			return found[0], true
		}
	}
	return "", false
}

// assign sets the options that a text of keys and values names, if they may be.
func (g *GPU) assign(source, text, example string, may func(option) bool) error {
	order, values, err := pairs(source, text, example, nil)
	if err != nil {
		return err
	}
	if name := values["name"]; name != "" && g.Name == "" {
		g.at = fmt.Sprintf("%s name=%s", source, name)
	}
	byKey, all := make(map[string]option), make(map[string]bool)
	for _, o := range options(g) {
		all[o.path] = true
		if may(o) {
			byKey[o.path] = o
		}
	}
	known := slices.Sorted(maps.Keys(byKey))
	for _, key := range order {
		o, ok := byKey[key]
		where := g.at + ": " + key
		switch {
		case !ok && all[key]:
			return &Error{Where: where, Reason: fmt.Sprintf("%s; remove the GPU and add it with %s=%s. These can: %s", notLive, key, values[key], strings.Join(known, ", "))}
		case !ok:
			return &Error{Where: where, Reason: unknownOfGPU(key, values[key], known)}
		case values[key] == "":
			return &Error{Where: where, Reason: "has no value; give one or leave it out"}
		}
		if err := o.set(values[key]); err != nil {
			return &Error{Where: where, Reason: err.Error()}
		}
		g.given[key] = where
	}
	return nil
}

// pairs reads keys and values. A part without a key belongs to the value before it,
// which has commas.
// Name is what a key is called, however it is written; nil: as it is.
func pairs(source, text, example string, name func(string) string) (order []string, values map[string]string, err error) {
	values = make(map[string]string)
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if ok && name != nil {
			key = name(key)
		}
		switch {
		case ok && slices.Contains(order, key):
			return nil, nil, &Error{Where: source, Value: text, Reason: key + " is there twice"}
		case ok:
			order = append(order, key)
			values[key] = value
		case len(order) == 0:
			return nil, nil, &Error{Where: source, Value: text, Reason: "not keys and values; write " + example}
		default: // a comma of the value before
			values[order[len(order)-1]] += "," + part
		}
	}
	return order, values, nil
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
		if value, err := o.take(values[key]); err != nil {
			return &Error{Where: where, Value: value, Reason: err.Error()}
		}
		g.given[key] = where
	}
	return nil
}

// Pair is the key and the value of one part between commas, without spaces around them; a part
// without a sign has no value.
func Pair(part string) (key, value string) {
	key, value, _ = strings.Cut(part, "=")
	return strings.TrimSpace(key), strings.TrimSpace(value)
}

// pairs reads keys and values. A part without a key belongs to the value before it,
// which has commas. Name is what a key is called, however it is written; nil: as it is.
func pairs(source, text, example string, name func(string) string) (order []string, values map[string]string, err error) {
	values = make(map[string]string)
	for part := range strings.SplitSeq(text, ",") {
		key, value := Pair(part)
		ok := strings.Contains(part, "=")
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
	if paths := meant(key); len(paths) == 1 {
		for _, o := range options(new(Config)) {
			if o.path != paths[0] {
				continue
			}
			why := fmt.Sprintf("is the server's, not a GPU's; give --%s to umbra serve", o.flag)
			if scheduled := strings.TrimPrefix(o.path, schedulerKeys); o.live() && slices.Contains(new(Schedule).Keys(), scheduled) {
				why += fmt.Sprintf(", or umbra sched set %s=%s", scheduled, value)
			}
			return why
		}
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

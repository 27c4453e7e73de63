package config

import (
	"errors"
	"slices"
	"strings"
)

// A setting is one option as the user gave it, and where. The value of a bad one was refused, and is empty.
type setting struct {
	key, value, where string
	bad               bool
}

// An entry is what the user gave of the server, a GPU or a profile. The last of several settings
// of an option counts.
type entry struct {
	at       string // "f.yaml:6:3: gpus[1]", or "--gpu name=a"
	settings []setting
}

// get returns the setting of an option, or an empty one.
func (e *entry) get(key string) setting {
	for _, s := range slices.Backward(e.settings) {
		if s.key == key {
			return s
		}
	}
	return setting{}
}

// Given reports whether the user gave the option.
func (e *entry) Given(key string) bool { return e.get(key).where != "" }

// Where names the option as the user wrote it, or would.
func (e *entry) Where(key string) string {
	switch s := e.get(key); {
	case s.where != "":
		return s.where
	case strings.HasSuffix(e.at, "]"):
		return e.at + "." + key
	}
	return e.at + ": " + key
}

// Pair splits one part between commas into key and value.
func Pair(part string) (key, value string) {
	key, value, _ = strings.Cut(part, "=")
	return strings.TrimSpace(key), strings.TrimSpace(value)
}

// pairs reads keys and values. A part without a key belongs to the value before it, which has
// commas. At names the text in errors, and example shows one.
func pairs(at, text, example string) (out []setting, err error) {
	for part := range strings.SplitSeq(text, ",") {
		key, value := Pair(part)
		switch {
		case !strings.Contains(part, "=") && len(out) == 0:
			return nil, &Error{at, text, "not keys and values; write " + example}
		case !strings.Contains(part, "="):
			out[len(out)-1].value += "," + part
		case slices.ContainsFunc(out, func(s setting) bool { return s.key == key }):
			return nil, &Error{at, text, key + " is there twice"}
		default:
			out = append(out, setting{key: key, value: value})
		}
	}
	return out, nil
}

// Assign sets the options of a structure as keys and values say.
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
		o := find(of, s.key)
		reason := ""
		switch {
		case o == nil:
			reason = "unknown key; " + Known(s.key, slices.Sorted(slices.Values(keys(of))))
		case s.value == "":
			reason = "has no value; give one or leave it out"
		default:
			if err := o.set(s.value); err != nil {
				reason = err.Error()
			}
		}
		if reason != "" {
			errs = append(errs, refusal(s.where, s.value, reason))
			s.value, s.bad = "", true
		}
	}
	return errors.Join(errs...)
}

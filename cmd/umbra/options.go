package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// optionsOf converts options from the configuration's flat keys to the API's form.
func optionsOf(values map[string]any) api.Options {
	out := api.Options{}
	for path, value := range values {
		keys := strings.Split(strings.ReplaceAll(path, "-", "_"), ".")
		at, key := out, keys[len(keys)-1]
		for _, section := range keys[:len(keys)-1] {
			next, ok := at[section].(api.Options)
			if !ok {
				next = api.Options{}
				at[section] = next
			}
			at = next
		}
		switch v := value.(type) {
		case int, bool, string:
			at[key] = v
		case config.Percent:
			at[key] = int(v)
		case config.Size:
			at[key] = uint64(v)
		case config.Counts:
			at[key] = []int(v)
		default:
			text := fmt.Sprint(v)
			if d, err := time.ParseDuration(text); err == nil {
				at[key+"_ns"] = d.Nanoseconds()
			} else {
				at[key] = text
			}
		}
	}
	return out
}

// changes lists the options that differ, in the order of keys.
func changes(keys []string, before, after map[string]any) (out []api.Change) {
	for _, key := range keys {
		if was, now := fmt.Sprint(before[key]), fmt.Sprint(after[key]); was != now {
			out = append(out, api.Change{Key: key, Before: was, After: now})
		}
	}
	return out
}

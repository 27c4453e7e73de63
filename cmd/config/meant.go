package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// What a key may mean that stands where there is none of its name: people know an option by
// the last word of its path, by its flag, or as it is written elsewhere.

// mostMeant is how many options a message offers; of more, none is meant.
const mostMeant = 4

// plain is a name with one sign between its words, whichever it was.
func plain(name string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(name))
}

// meant lists the paths of the configuration that a key may mean: those that it names by path
// or flag, else options that end in it, else sections that do.
func meant(key string) []string {
	key = plain(key)
	var whole, ends, sections []string
	for _, o := range options(new(Config)) {
		words := strings.Split(o.path, ".")
		for i := range words[:len(words)-1] {
			if path := strings.Join(words[:i+1], "."); i > 0 && words[i] == key && !slices.Contains(sections, path) {
				sections = append(sections, path)
			}
		}
		switch {
		case plain(o.path) == key, o.flag == key:
			whole = append(whole, o.path)
		case words[len(words)-1] == key:
			ends = append(ends, o.path)
		}
	}
	for _, found := range [][]string{whole, ends, sections} {
		if n := len(found); n > 0 && n <= mostMeant {
			return found
		}
	}
	return nil
}

// nearly is the path of the option whose flag, or last word, is nearly the key: one letter in
// five may be wrong. Of several none is meant.
func nearly(key string) []string {
	var out []string
	for _, o := range options(new(Config)) {
		last := o.path[strings.LastIndex(o.path, ".")+1:]
		if least := max(1, len(key)/5); len(key) > 3 && (distance(plain(key), o.flag) <= least || distance(plain(key), last) <= least) {
			out = append(out, o.path)
		}
	}
	if len(out) != 1 {
		return nil
	}
	return out
}

// FlagMeant is the flag that may be meant by one that there is not.
func FlagMeant(name string) (flag string, ok bool) {
	paths := meant(name)
	if len(paths) != 1 {
		return "", false
	}
	flag, ok = new(Config).FlagNames()[paths[0]]
	return flag, ok
}

// unknown says that a file has no such key in a section, and what may be meant: an option of
// another section, which is shown as it is written there, or a key that is written alike.
func unknown(prefix, key, value string, section reflect.Type) string {
	here := keys(section)
	inGPU := strings.HasPrefix(prefix, "gpus[") || strings.HasPrefix(prefix, "profiles[")
	if inGPU {
		if path, ok := meantOfGPU(key, value); ok {
			path, said, _ := strings.Cut(path, "=")
			if said == "" {
				said = value
			}
			return fmt.Sprintf("unknown key; did you mean %q? In a GPU or profile write %s", path, nested(path, said))
		}
	}
	local := Known(key, here)
	paths := meant(key)
	if len(paths) == 0 && !strings.HasPrefix(local, "did you mean") {
		paths = nearly(key)
	}
	whose := "unknown key"
	if inGPU {
		whose = "is the server's, not a GPU's"
	}
	switch {
	case len(paths) == 1:
		write := "Write"
		if prefix != "" {
			write = "At the top level write"
		}
		return fmt.Sprintf("%s; did you mean %q? %s %s", whose, paths[0], write, nested(paths[0], value))
	case len(paths) > 1:
		return fmt.Sprintf("%s; did you mean %s?", whose, either(paths))
	case !inGPU && slices.Contains(keys(reflect.TypeFor[GPU]()), key):
		return "is a virtual GPU's; write it in an element of gpus, or of profiles"
	}
	return "unknown key; " + local
}

// nested is an option as a file has it.
func nested(path, value string) string {
	if value == "" {
		value = "..."
	}
	if strings.Contains(value, ",") && !strings.HasPrefix(value, "[") && !strings.HasPrefix(value, "{") {
		value = "[" + value + "]"
	}
	words := strings.Split(path, ".")
	out := words[len(words)-1] + ": " + value
	for _, w := range slices.Backward(words[:len(words)-1]) {
		out = w + ": {" + out + "}"
	}
	return out
}

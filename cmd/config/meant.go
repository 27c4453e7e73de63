package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
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
// another section, or that section, which is shown as it is written there, or a key that is
// written alike.
func unknown(prefix, key string, value ast.Node, section reflect.Type) string {
	here := keys(section)
	inProfile := strings.HasPrefix(prefix, "profiles[")
	inGPU := inProfile || strings.HasPrefix(prefix, "gpus[")
	if inGPU {
		path, ok := meantOfGPU(key, text(value))
		path, said, _ := strings.Cut(path, "=")
		if said == "" {
			said = written(value, listOf(new(GPU), path))
		}
		if !ok && holds(new(GPU), key, value) {
			path, ok = key, true
		}
		if where := "a GPU or profile"; ok {
			if first, _, _ := strings.Cut(path, "."); inProfile && !slices.Contains(keys(reflect.TypeFor[Profile]()), first) {
				where = "a GPU"
			}
			return fmt.Sprintf("unknown key; did you mean %q? In %s write %s", path, where, nested(path, said))
		}
	}
	local := Known(key, here)
	paths, said := meant(key), ""
	if top, ok := emptyTop(key); ok && prefix != "" {
		paths = []string{key}
		if _, scalar := value.(ast.ScalarNode); scalar {
			said = top
		}
	}
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
		if said == "" {
			said = written(value, listOf(new(Config), paths[0]))
		}
		return fmt.Sprintf("%s; did you mean %q? %s %s", whose, paths[0], write, nested(paths[0], said))
	case len(paths) > 1:
		return fmt.Sprintf("%s; did you mean %s?", whose, either(paths))
	case !inGPU && slices.Contains(keys(reflect.TypeFor[GPU]()), key):
		return "is a virtual GPU's; write it in an element of gpus, or of profiles"
	}
	return "unknown key; " + local
}

// emptyTop is how a section, or a list, of that name at the top of a file begins and ends, if
// there is one.
func emptyTop(key string) (string, bool) {
	field, _, ok := fieldOf(reflect.ValueOf(new(Config)).Elem(), key)
	switch {
	case ok && isSection(field.Type()):
		return "{" + unwritten + "}", true
	case ok && isList(field.Type()):
		return "[" + unwritten + "]", true
	}
	return "", false
}

// holds tells whether a GPU has a section of that name that has all keys of a mapping.
func holds(g *GPU, name string, n ast.Node) bool {
	field, _, ok := fieldOf(reflect.ValueOf(g).Elem(), name)
	m, isMap := n.(ast.MapNode)
	if !ok || !isMap || !isSection(field.Type()) {
		return false
	}
	for it := m.MapRange(); it.Next(); {
		if _, _, ok := fieldOf(field, it.Key().GetToken().Value); !ok {
			return false
		}
	}
	return true
}

// listOf tells whether the option at path of a Config or GPU is a list, written with commas.
func listOf(of any, path string) bool {
	return slices.ContainsFunc(options(of), func(o option) bool { return o.path == path && isWords(o.value.Type()) })
}

// nested is an option or a section as a file has it, on one line.
func nested(path, value string) string {
	words := strings.Split(path, ".")
	out := words[len(words)-1] + ": " + value
	for _, w := range slices.Backward(words[:len(words)-1]) {
		out = w + ": {" + out + "}"
	}
	return out
}

const (
	// unwritten stands for a value that is missing, or that a message does not repeat.
	unwritten = "..."
	// mostWritten is how many bytes of a value it repeats.
	mostWritten = 60
)

// written is a value as it may stand within braces. One of a list that is written with commas
// gets brackets, for there commas end a value.
func written(n ast.Node, list bool) string {
	if out, ok := inFlow(n, list); ok {
		return out
	}
	return unwritten
}

// inFlow is that value, if it is one that is repeated.
func inFlow(n ast.Node, list bool) (out string, ok bool) {
	defer func() { ok = ok && len(out) <= mostWritten }()
	var parts []string
	switch n := n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		value := n.GetToken().Value
		if !list || !strings.Contains(value, ",") {
			return quoted(value), true
		}
		for part := range strings.SplitSeq(unbracket(value), ",") {
			parts = append(parts, quoted(strings.TrimSpace(part)))
		}
		return "[" + strings.Join(parts, ",") + "]", true
	case *ast.SequenceNode:
		for _, v := range n.Values {
			part, ok := inFlow(v, false)
			if !ok {
				return "", false
			}
			parts = append(parts, part)
		}
		return "[" + strings.Join(parts, ", ") + "]", true
	case ast.MapNode:
		for it := n.MapRange(); it.Next(); {
			part, ok := inFlow(it.Value(), false)
			if _, key := it.Key().(*ast.StringNode); !ok || !key {
				return "", false
			}
			parts = append(parts, quoted(it.Key().GetToken().Value)+": "+part)
		}
		return "{" + strings.Join(parts, ", ") + "}", true
	}
	return "", false
}

// bare is what YAML takes for itself wherever it stands, but for the words for nothing.
var (
	bare    = regexp.MustCompile(`^-?[A-Za-z0-9_./+][A-Za-z0-9_./%+-]*(:[A-Za-z0-9_./%+-]+)*$`)
	nothing = regexp.MustCompile(`^(?i:null)$`)
)

// quoted is a value in quotes, if it needs some.
func quoted(value string) string {
	if bare.MatchString(value) && !nothing.MatchString(value) {
		return value
	}
	return strconv.Quote(value)
}

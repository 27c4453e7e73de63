package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds what is read, so that a wrong path (a disk image) is not read whole.
const maxFile = 2 << 20

// ReadInput reads a file that the user names; - is standard input. Its error says why, without the
// name.
func ReadInput(name string) ([]byte, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, errors.Unwrap(err)
		}
		defer f.Close()
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // a device has no end
	if path := new(fs.PathError); errors.As(err, &path) {
		return nil, path.Err
	}
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("larger than %v, the most that is read", Size(maxFile))
	}
	return data, err
}

// ReadFile puts a YAML file over the configuration.
func (c *Config) ReadFile(name string) error {
	data, err := ReadInput(name)
	if err != nil {
		return &Error{"--config", name, err.Error()}
	}
	return c.Parse(name, data)
}

// YAMLError is the error of the YAML library with its place in a file.
func YAMLError(name string, err error) error {
	if y := yaml.Error(nil); errors.As(err, &y) && y.GetToken() != nil {
		p := y.GetToken().Position
		return &Error{Where: fmt.Sprintf("%s:%d:%d", name, p.Line, p.Column), Reason: y.GetMessage()}
	}
	return &Error{Where: name, Reason: err.Error()}
}

// Parse puts the text of a YAML file over the configuration. The name is for errors.
func (c *Config) Parse(name string, data []byte) error {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return YAMLError(name, err)
	}
	r := reader{name: name}
	for i, d := range f.Docs {
		switch {
		case d.Body == nil || d.Body.Type() == ast.CommentType: // an empty file says nothing
		case i > 0:
			r.fail(d.Body, "", "", "a second document; put everything into one")
		default:
			r.top(d.Body, c)
		}
	}
	return errors.Join(r.errs...)
}

// A reader flattens a syntax tree into settings and collects the errors.
type reader struct {
	name string
	errs []error
}

func (r *reader) where(n ast.Node, path string) string {
	p := n.GetToken().Position
	where := fmt.Sprintf("%s:%d:%d", r.name, p.Line, p.Column)
	if path != "" {
		where += ": " + path
	}
	return where
}

func (r *reader) fail(n ast.Node, path, value, format string, args ...any) {
	r.errs = append(r.errs, &Error{r.where(n, path), value, fmt.Sprintf(format, args...)})
}

// Keys of the lists.
const (
	profilesKey = "profiles"
	gpusKey     = "gpus"
)

// top reads the file's mapping: the sections and the lists.
func (r *reader) top(n ast.Node, c *Config) {
	of := options(c)
	section := &section{r: r, keys: append(paths(of), gpusKey, profilesKey)}
	section.read(n, "", func(n ast.Node, s setting) {
		switch s.key {
		case gpusKey:
			c.gpus = append(c.gpus, r.list(n, s.key, new(GPU))...)
		case profilesKey:
			c.profiles = append(c.profiles, r.list(n, s.key, new(profile))...)
		default:
			if r.apply(of, n, s, s.key) {
				c.gave(s.key, s.where)
			}
		}
	})
}

// list reads a list of mappings. The options of scratch say which keys an element may have.
func (r *reader) list(list ast.Node, key string, scratch any) (out []entry) {
	seq, ok := list.(*ast.SequenceNode)
	if !ok {
		r.fail(list, key, short(list), "not a list; begin each element with a dash")
		return nil
	}
	of := options(scratch)
	for i, n := range seq.Values {
		at := fmt.Sprintf("%s[%d]", key, i)
		e := entry{at: r.where(n, at)}
		element := &section{r: r, keys: paths(of), at: at + "."}
		element.read(n, "", func(n ast.Node, s setting) {
			if r.apply(of, n, s, at+"."+s.key) {
				e.settings = append(e.settings, s)
			}
		})
		out = append(out, e)
	}
	return out
}

// apply sets an option to what a node says.
func (r *reader) apply(of []option, n ast.Node, s setting, path string) bool {
	o := of[slices.IndexFunc(of, func(o option) bool { return o.path == s.key })]
	if _, scalar := n.(ast.ScalarNode); !scalar && !isList(o.value.Type()) {
		r.fail(n, path, short(n), "one value is wanted here")
		return false
	}
	if err := o.set(s.value); err != nil {
		r.fail(n, path, "", "%v", err)
		return false
	}
	return true
}

// A setting is one option as the user gave it.
type setting struct{ key, value, where string }

// A section reads a mapping, with the mappings in it, as settings.
type section struct {
	r    *reader
	keys []string // of all options that may be set
	at   string   // what stands before the keys in errors
}

func (s *section) read(n ast.Node, prefix string, put func(ast.Node, setting)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		s.r.fail(n, strings.TrimSuffix(s.at+prefix, "."), short(n), "not a mapping; write keys and values: %s", strings.Join(s.below(prefix), ", "))
		return
	}
	for it := m.MapRange(); it.Next(); {
		key, value := it.KeyValue().Key, it.Value()
		path := prefix + key.GetToken().Value
		switch here := s.below(path + "."); {
		case !slices.Contains(s.keys, path) && len(here) == 0:
			s.r.fail(key, s.at+path, "", "%s", s.unknown(prefix, path))
		case value.Type() == ast.NullType:
			s.r.fail(key, s.at+path, "", "has no value; give one, or remove the key. A list in braces needs brackets: [a, b]")
		case len(here) > 0:
			s.read(value, path+".", put)
		default:
			put(value, setting{path, words(value), s.r.where(value, s.at+path)})
		}
	}
}

// below lists the keys of a section.
func (s *section) below(prefix string) (out []string) {
	for _, k := range s.keys {
		if in, ok := strings.CutPrefix(k, prefix); ok {
			in, _, _ = strings.Cut(in, ".")
			if !slices.Contains(out, in) {
				out = append(out, in)
			}
		}
	}
	return out
}

// unknown says which key may be meant by a wrong one: a key of the same section, or an option
// of another.
func (s *section) unknown(prefix, path string) string {
	key, here := strings.TrimPrefix(path, prefix), s.below(prefix)
	switch {
	case meant(key, here) == "" && meant(key, s.keys) != "":
		return fmt.Sprintf("unknown key; did you mean %q?", meant(key, s.keys))
	case strings.HasPrefix(s.at, profilesKey) && slices.Contains(paths(options(new(GPU))), path):
		return "a profile has none; give it to each GPU"
	}
	return "unknown key; " + Known(key, here)
}

// words is a node as one value: a list with commas, and a colon between a name and its value.
func words(n ast.Node) string {
	var parts []string
	switch n := n.(type) {
	case ast.ScalarNode:
		return n.GetToken().Value
	case *ast.MappingValueNode:
		if n.Value.Type() == ast.NullType { // {bar1, bar3}: names alone
			return words(n.Key)
		}
		return words(n.Key) + ":" + words(n.Value)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			parts = append(parts, words(v))
		}
	case *ast.MappingNode:
		for _, v := range n.Values {
			parts = append(parts, words(v))
		}
	}
	return strings.Join(parts, ",")
}

// short is the beginning of a node, for a message.
func short(n ast.Node) string {
	s, _, _ := strings.Cut(n.String(), "\n")
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return s
}

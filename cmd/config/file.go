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
		c.failed = true
		return YAMLError(name, err)
	}
	r := reader{name: name, lists: map[string]*[]entry{"gpus": &c.gpus, "profiles": &c.profiles}}
	for i, d := range f.Docs {
		switch {
		case d.Body == nil || d.Body.Type() == ast.CommentType: // an empty file says nothing
		case i > 0:
			r.fail(d.Body, "", "a second document; put everything into one")
		default:
			top := section{of: options(c)}
			top.keys = append(keys(top.of), "gpus", "profiles")
			c.given.settings = append(c.given.settings, r.read(d.Body, &top, "")...)
		}
	}
	c.failed = c.failed || len(r.errs) > 0
	return errors.Join(r.errs...)
}

// A reader turns a syntax tree into settings. It keeps the tree's places, which decoding loses, and
// collects all errors.
type reader struct {
	name  string
	lists map[string]*[]entry // where the entries of a list go
	errs  []error
}

// A section is a mapping with the mappings in it.
type section struct {
	of   []option // that it may set
	keys []string // of the options, and of lists
	at   string   // what stands before the keys in errors: "gpus[1]."
}

func (r *reader) where(n ast.Node, path string) string {
	p := n.GetToken().Position
	return strings.TrimSuffix(fmt.Sprintf("%s:%d:%d: %s", r.name, p.Line, p.Column, path), ": ")
}

func (r *reader) fail(n ast.Node, path, reason string) {
	r.errs = append(r.errs, &Error{Where: r.where(n, path), Reason: reason})
}

// read sets the options that a mapping names, and returns their settings.
func (r *reader) read(n ast.Node, s *section, prefix string) (out []setting) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.fail(n, strings.TrimSuffix(s.at+prefix, "."), "not a mapping; write keys and values: "+strings.Join(s.below(prefix), ", "))
		return nil
	}
	for it := m.MapRange(); it.Next(); {
		key, value := it.KeyValue().Key, it.Value()
		path := prefix + key.GetToken().Value
		o, inside := find(s.of, path), s.below(path+".")
		switch {
		case o == nil && len(inside) == 0 && !slices.Contains(s.keys, path):
			r.fail(key, s.at+path, s.unknown(prefix, path))
		case value.Type() == ast.NullType:
			r.fail(key, s.at+path, "has no value; give one, or remove the key. A list in braces needs brackets: [a, b]")
			out = append(out, setting{path, "", r.where(key, s.at+path), true})
		case o != nil:
			out = append(out, r.set(value, o, s.at+path))
		case len(inside) > 0:
			out = append(out, r.read(value, s, path+".")...)
		default:
			r.list(value, path)
		}
	}
	return out
}

// list reads a list of GPUs or profiles.
func (r *reader) list(n ast.Node, key string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fail(n, key, "not a list; begin each element with a dash")
		return
	}
	s := section{of: options(new(GPU))}
	s.keys = keys(s.of)
	for i, n := range seq.Values {
		at := fmt.Sprintf("%s[%d]", key, i)
		s.at = at + "."
		*r.lists[key] = append(*r.lists[key], entry{r.where(n, at), r.read(n, &s, "")})
	}
}

// set sets an option to what a node says, and returns the setting.
func (r *reader) set(n ast.Node, o *option, path string) setting {
	var words []string
	switch n := n.(type) {
	case ast.ScalarNode:
		words = []string{n.GetToken().Value}
	case *ast.SequenceNode:
		for _, v := range n.Values {
			words = append(words, v.GetToken().Value)
		}
	}
	if _, scalar := n.(ast.ScalarNode); words == nil || !scalar && !o.isList() {
		r.fail(n, path, "one value is wanted here")
		return setting{o.path, "", r.where(n, path), true}
	}
	value := strings.Join(words, ",")
	if err := o.set(value); err != nil {
		r.fail(n, path, err.Error())
		return setting{o.path, "", r.where(n, path), true}
	}
	return setting{o.path, value, r.where(n, path), false}
}

// below lists the keys of a section.
func (s *section) below(prefix string) (out []string) {
	for _, k := range s.keys {
		if in, ok := strings.CutPrefix(k, prefix); ok {
			in, _, _ = strings.Cut(in, ".")
			out = append(out, in)
		}
	}
	return slices.Compact(out)
}

// unknown says which key may be meant by a wrong one: a key of the same section, or an option
// of another.
func (s *section) unknown(prefix, path string) string {
	key, here := strings.TrimPrefix(path, prefix), s.below(prefix)
	if m := meant(key, s.keys); m != "" && meant(key, here) == "" {
		return fmt.Sprintf("unknown key; did you mean %q?", m)
	}
	return "unknown key; " + Known(key, here)
}

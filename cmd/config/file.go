package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// maxFile bounds the file, so that a wrong path (a disk image) is not read whole.
const maxFile = 1 << 20

// File reads the layer in a YAML file.
func File(name string) (Layer, error) {
	data, err := read(name)
	if path := new(fs.PathError); errors.As(err, &path) {
		return Layer{}, &Error{Where: "--config", Value: name, Reason: path.Err.Error()}
	}
	if err != nil {
		return Layer{}, err
	}
	if len(data) > maxFile {
		return Layer{}, &Error{Where: "--config", Value: name, Reason: fmt.Sprintf("more than %d bytes, too large for a configuration file; give one of YAML", maxFile)}
	}
	return Parse(name, data)
}

// read reads no more than tells that it is too much: a device has no end.
func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse reads the layer in the text of a YAML file. The name is for errors.
func Parse(name string, data []byte) (Layer, error) {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return Layer{}, &Error{Where: fmt.Sprintf("%s:%d", name, y.GetToken().Position.Line), Reason: y.GetMessage()}
		}
		return Layer{}, &Error{Where: name, Reason: err.Error()}
	}
	r := reader{name: name}
	if len(f.Docs) > 1 && f.Docs[1].Body != nil {
		return Layer{}, r.errorf(f.Docs[1].Body, "", "", "a second document; put everything into one")
	}
	for _, d := range f.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue // an empty file says nothing
		}
		if err := r.section(d.Body, reflect.ValueOf(&r.layer.Config).Elem(), ""); err != nil {
			return Layer{}, err
		}
	}
	return r.layer, nil
}

// reader fills a layer from a syntax tree.
type reader struct {
	name  string
	layer Layer
}

func (r *reader) where(n ast.Node, path string) string {
	where := fmt.Sprintf("%s:%d", r.name, n.GetToken().Position.Line)
	if path != "" {
		where += ": " + path
	}
	return where
}

func (r *reader) errorf(n ast.Node, path, value, format string, args ...any) error {
	return &Error{Where: r.where(n, path), Value: value, Reason: fmt.Sprintf(format, args...)}
}

// section reads a mapping into the fields of v.
func (r *reader) section(n ast.Node, v reflect.Value, prefix string) error {
	m, ok := n.(ast.MapNode)
	if !ok {
		return r.errorf(n, strings.TrimSuffix(prefix, "."), short(n), "not a mapping; write keys and values: %s", strings.Join(keys(v.Type()), ", "))
	}
	var list *option // the option before, if it is one of words, and what was given to it
	given := ""
	for it := m.MapRange(); it.Next(); {
		key, value := it.KeyValue().Key, it.Value()
		name := key.GetToken().Value
		field, tag, ok := fieldOf(v, name)
		path := prefix + name
		switch {
		case value.Type() == ast.NullType && list != nil:
			// In braces a comma ends a value, and what comes behind it is a key.
			for given += ", " + name; it.Next() && it.Value().Type() == ast.NullType; {
				given += ", " + it.KeyValue().Key.GetToken().Value
			}
			return r.errorf(key, path, "", "has no value; if it belongs to %s, write that in brackets: %s: [%s]", list.path, list.flag, given)
		case !ok && notOfProfile(v.Type(), name):
			return r.errorf(key, path, "", "a profile has no %s; give it to each GPU, in its element of gpus", name)
		case !ok:
			return r.errorf(key, path, "", "%s", unknown(prefix, name, value, v.Type()))
		case value.Type() == ast.NullType:
			return r.errorf(key, path, "", "has no value; give one or remove the line")
		case isList(field.Type()):
			if err := r.list(value, field, path); err != nil {
				return err
			}
		case isSection(field.Type()):
			if err := r.section(value, field, path+"."); err != nil {
				return err
			}
		default:
			o := option{path: path, flag: name, value: field, tag: tag}
			if err := r.scalar(value, &o); err != nil {
				return err
			}
			if _, alone := value.(ast.ScalarNode); alone && isWords(field.Type()) && inBraces(n) {
				list, given = &o, text(value)
				continue
			}
		}
		list = nil
	}
	return nil
}

// notOfProfile tells whether the key of a section is one that each GPU has of its own, and a
// profile therefore has not.
func notOfProfile(section reflect.Type, key string) bool {
	return section == reflect.TypeFor[Profile]() && slices.Contains(keys(reflect.TypeFor[GPU]()), key)
}

// inBraces tells whether a mapping is written {so: 1}.
func inBraces(n ast.Node) bool {
	m, ok := n.(*ast.MappingNode)
	return ok && m.IsFlowStyle
}

// list reads a sequence of mappings into the slice v. Each element remembers how
// the user wrote it.
func (r *reader) list(n ast.Node, v reflect.Value, path string) error {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return r.errorf(n, path, short(n), "not a list; begin each element with a dash: - {%s}", strings.Join(keys(v.Type().Elem()), ", "))
	}
	for i, value := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		p := reflect.New(v.Type().Elem())
		own := reader{name: r.name}
		if err := own.section(value, p.Elem(), at+"."); err != nil {
			return err
		}
		e := p.Interface().(element).self()
		e.at = r.where(value, at)
		e.given = make(map[string]string)
		for path, where := range own.layer.where {
			e.given[strings.TrimPrefix(path, at+".")] = where
		}
		v.Set(reflect.Append(v, p.Elem()))
	}
	return nil
}

// scalar reads one option. A list of numbers or words may be a sequence, and one of
// names with values a mapping.
func (r *reader) scalar(n ast.Node, o *option) error {
	value, ok := text(n), true
	if isWords(o.value.Type()) {
		value, ok = words(n)
	} else {
		_, ok = n.(ast.ScalarNode)
	}
	if !ok {
		return r.errorf(n, o.path, short(n), "one value is wanted here, such as %s", example(o))
	}
	if value, err := o.take(value); err != nil {
		return r.errorf(n, o.path, value, "%v", err)
	}
	r.layer.given(o.path, r.where(n, o.path))
	return nil
}

// words is a list as it would stand in one value: with commas, and a colon between a
// name and its value. In braces and brackets YAML takes name:value for a mapping.
func words(n ast.Node) (string, bool) {
	var nodes []ast.Node
	switch n := n.(type) {
	case ast.ScalarNode:
		return text(n), true
	case *ast.MappingValueNode:
		value, ok := n.Value.(ast.ScalarNode)
		if !ok {
			return "", false
		}
		if value.Type() == ast.NullType { // {bar1,bar3}: names alone
			return text(n.Key), true
		}
		return text(n.Key) + ":" + text(value), true
	case *ast.SequenceNode:
		nodes = n.Values
	case *ast.MappingNode:
		for _, v := range n.Values {
			nodes = append(nodes, v)
		}
	default:
		return "", false
	}
	var parts []string
	for _, v := range nodes {
		part, ok := words(v)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), true
}

// isWords tells whether an option's value is a list, written with commas.
func isWords(t reflect.Type) bool {
	return t == reflect.TypeFor[Counts]() || t == reflect.TypeFor[homes.Map]()
}

func example(o *option) string {
	if d := o.tag.Get("def"); d != "" {
		return d
	}
	return o.tag.Get("placeholder")
}

// text is a node as the user wrote it, without quotes; of what is more than a value
// the first line.
func text(n ast.Node) string {
	if _, ok := n.(ast.ScalarNode); ok {
		return n.GetToken().Value
	}
	s, _, _ := strings.Cut(n.String(), "\n")
	return s
}

// short is text for a message: of a long one the beginning.
func short(n ast.Node) string {
	s := text(n)
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return s
}

// keys lists the keys of a mapping that is read into a t.
func keys(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Anonymous && f.IsExported():
			out = append(out, keys(f.Type)...)
		case f.IsExported():
			out = append(out, f.Tag.Get("yaml"))
		}
	}
	return out
}

// fieldOf returns the field for a key.
func fieldOf(v reflect.Value, key string) (reflect.Value, reflect.StructTag, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Anonymous && f.IsExported():
			if in, tag, ok := fieldOf(v.Field(i), key); ok {
				return in, tag, true
			}
		case f.IsExported() && f.Tag.Get("yaml") == key:
			return v.Field(i), f.Tag, true
		}
	}
	return reflect.Value{}, "", false
}

// Known says which words there are, for an error about a name that is none of
// them, and which one might be meant: the nearest, if half of name's letters or
// more are right.
func Known(name string, words []string) string {
	best, least := "", max(1, len(name)/2)+1
	for _, w := range words {
		if d := distance(strings.ToLower(name), strings.ToLower(w)); d < least && d < len(name) {
			best, least = w, d
		}
	}
	known := "there are " + strings.Join(words, ", ")
	if best == "" {
		return known
	}
	return fmt.Sprintf("did you mean %q? T%s", best, known[1:])
}

// distance counts the insertions, deletions and changes between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

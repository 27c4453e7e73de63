package simulate

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// file is a plan as a YAML file has it.
type file struct {
	Name     string            `yaml:"name"`
	About    string            `yaml:"about"`
	Duration time.Duration     `yaml:"duration"`
	Seed     uint64            `yaml:"seed"`
	Set      map[string]string `yaml:"set"`
	Policies []string          `yaml:"policies"`
	Guests   []node            `yaml:"guests"`

	where where
}

// where is how the user wrote what a path names: "guests[0].weight" is "mix.yaml:3:
// guests[0].weight".
type where map[string]string

// of is that of a path, or of what it is in.
func (w where) of(path string) string {
	for in := path; ; in = in[:strings.LastIndexAny(in, ".[")] {
		if at, ok := w[in]; ok {
			return strings.TrimSuffix(at, in) + path
		}
		if !strings.ContainsAny(in, ".[") {
			return path
		}
	}
}

// maxFile bounds a file, so that a wrong path is not read whole.
const maxFile = 1 << 20

func readFile(name string) (*file, error) {
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxFile {
		return nil, &config.Error{Where: name, Reason: fmt.Sprintf("%d bytes; the description of a mix has at most %d", info.Size(), maxFile)}
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, &config.Error{Where: "--mix", Value: name, Reason: path.Err.Error()}
	}
	if err != nil {
		return nil, err
	}
	return parse(name, data)
}

// parse reads the text of a file. The name is for errors.
func parse(name string, data []byte) (*file, error) {
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return nil, &config.Error{Where: fmt.Sprintf("%s:%d", name, y.GetToken().Position.Line), Reason: y.GetMessage()}
		}
		return nil, &config.Error{Where: name, Reason: err.Error()}
	}
	f := &file{where: make(where)}
	r := reader{name: name, where: f.where}
	read := false
	for _, d := range tree.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if read {
			return nil, r.errorf(d.Body, "", "a second document; put everything into one")
		}
		read = true
		if err := r.value(d.Body, reflect.ValueOf(f).Elem(), "", ""); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// mix is what the file says of who uses the card.
func (f *file) mix() (m model.Mix) {
	for i := range f.Guests {
		m.Guests = append(m.Guests, f.Guests[i].model())
	}
	return m
}

// reader fills a file from a syntax tree.
type reader struct {
	name  string
	where where
	depth int
}

// maxDepth bounds what a file can have in one another.
const maxDepth = 64

func (r *reader) at(n ast.Node, path string) string {
	at := fmt.Sprintf("%s:%d", r.name, n.GetToken().Position.Line)
	if path != "" {
		at += ": " + path
	}
	return at
}

func (r *reader) errorf(n ast.Node, path, format string, args ...any) error {
	return &config.Error{Where: r.at(n, path), Reason: fmt.Sprintf(format, args...)}
}

// value reads what a node says into v, whatever that is.
func (r *reader) value(n ast.Node, v reflect.Value, tag reflect.StructTag, path string) error {
	r.where[path] = r.at(n, path)
	if r.depth++; r.depth > maxDepth {
		return r.errorf(n, path, "deeper than %d levels", maxDepth)
	}
	defer func() { r.depth-- }()
	switch {
	case n.Type() == ast.NullType:
		return r.errorf(n, path, "has no value; give one or remove the line")
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(n, v.Elem(), tag, path)
	case v.Kind() == reflect.Slice:
		return r.list(n, v, path)
	case v.Kind() == reflect.Map:
		return r.words(n, v, path)
	case v.Kind() == reflect.Struct:
		return r.mapping(n, v, path)
	}
	text := n.GetToken().Value
	switch n := n.(type) {
	case *ast.LiteralNode: // of several lines
		text = n.Value.Value
	case ast.ScalarNode:
	default:
		return r.errorf(n, path, "one value is wanted here")
	}
	if err := put(v, tag, text); err != nil {
		return r.errorf(n, path, "%v", err)
	}
	return nil
}

// mapping reads keys and values into the fields of v.
func (r *reader) mapping(n ast.Node, v reflect.Value, path string) error {
	m, ok := n.(ast.MapNode)
	if !ok {
		return r.errorf(n, path, "not a mapping; write keys and values: %s", strings.Join(known(v.Type()), ", "))
	}
	for it := m.MapRange(); it.Next(); {
		key, name := it.KeyValue().Key, it.KeyValue().Key.GetToken().Value
		at := strings.TrimPrefix(path+"."+name, ".")
		in, tag, ok := field(v, name)
		if !ok || name == "" {
			return r.errorf(key, at, "unknown key; %s", config.Known(name, known(v.Type())))
		}
		if err := r.value(it.Value(), in, tag, at); err != nil {
			return err
		}
	}
	return nil
}

// known lists the keys of a mapping.
func known(t reflect.Type) (out []string) {
	for _, k := range keys(t) {
		if k != "" {
			out = append(out, k)
		}
	}
	return out
}

// list reads a sequence into the slice v.
func (r *reader) list(n ast.Node, v reflect.Value, path string) error {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return r.errorf(n, path, "not a list; begin each element with a dash, or write them in brackets")
	}
	for i, e := range seq.Values {
		p := reflect.New(v.Type().Elem()).Elem()
		if err := r.value(e, p, "", fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
		v.Set(reflect.Append(v, p))
	}
	return nil
}

// words reads a mapping of names to values, whichever they are.
func (r *reader) words(n ast.Node, v reflect.Value, path string) error {
	m, ok := n.(ast.MapNode)
	if !ok {
		return r.errorf(n, path, "not a mapping; write keys and values: credit.period: 10ms")
	}
	v.Set(reflect.MakeMap(v.Type()))
	for it := m.MapRange(); it.Next(); {
		name := it.KeyValue().Key.GetToken().Value
		p := reflect.New(v.Type().Elem()).Elem()
		if err := r.value(it.Value(), p, "", path+"."+name); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(name), p)
	}
	return nil
}
